// A run under random faults: everything about it follows from one seed.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster.h"

namespace locum::sim {

struct RunResult {
  bool ok = false;
  std::string what;     // of the first thing that was wrong
  uint32_t faults = 0;  // how many were done
  uint64_t generations = 0;
  std::vector<TimedNote> notes;
};

// Faults come for a while, at most as many nodes down as can be replaced; then everything is healed and the job
// must reach its end, with every state on the way the one of an undisturbed run.
RunResult RunWithFaults(uint64_t seed);

std::string ToText(const TimedNote& note);

}  // namespace locum::sim
