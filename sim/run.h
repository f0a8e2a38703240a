// One run of a plan: what is planned is done to the cluster, as long as one copy of the state is left that can be had; then
// all is mended, and the job must reach its end with every law kept.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster.h"
#include "sim/plan.h"

namespace locum::sim {

struct RunResult {
  bool ok = false;
  std::string law;   // the first that was broken
  std::string what;  // who broke it, and how
  Time when;
  uint32_t faults = 0;       // that found something to be done to
  uint64_t generations = 0;  // opened
  uint64_t events = 0;       // Steps of all decisions: coordinator, agents, keepers
  uint64_t core_events = 0;  // of the coordinator alone
  uint64_t trace = 0;        // a hash over every line of the trace
  int exit_status = 0;
  std::vector<TimedNote> notes;
  std::vector<Deed> done;
};

RunResult Run(const RunPlan& plan);

// Leaves out what the broken law does not need.
RunPlan Shrink(const RunPlan& plan, const std::string& law);

std::string ToText(const TimedNote& note);
// The notes and deeds from shortly before the law was broken.
std::string Trail(const RunResult& result);

}  // namespace locum::sim
