// A run of the simulator before it is run: the job, the cluster, and what is done to it when. Everything follows from one
// seed, or is read from a script; a line can be left out without changing what the others mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/world.h"

namespace locum::sim {

struct Shape {
  uint32_t nodes = 0;  // that train; 0: the seed says, 2 to 5
  uint32_t ranks = 0;  // 0: the seed says, 1 or 2 a node
  std::string profile = "all";
};

struct Deed {
  Time when;
  std::string line;  // sim/script.h
};

struct RunPlan {
  JobSpec spec;
  Options options;
  std::vector<Deed> deeds;  // by time
  std::string profile;
};

// The names of the profiles of faults, for people.
std::vector<std::string> Profiles();
// kInvalid: no such profile, or ranks that do not fit the nodes.
Result<RunPlan> MakePlan(uint64_t seed, const Shape& shape);

// As text, and back; kInvalid says which line makes no sense.
std::string ToScript(const RunPlan& plan);
Result<RunPlan> FromScript(const std::string& text);

}  // namespace locum::sim
