// What the parts of a simulated cluster see of each other.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include "core/coordinator.h"
#include "sim/gang.h"
#include "sim/network.h"
#include "sim/stage.h"

namespace locum::sim {

class Worker;
class Node;
class Control;
class Watch;

// The bytes of a state, in chunks. State s+1 is a function of state s, so an undisturbed run has one content per state.
inline constexpr size_t kChunks = 4;
using Content = std::array<uint64_t, kChunks>;
inline uint64_t HashOf(const Content& content) {
  uint64_t hash = 0x10c0;
  for (uint64_t chunk : content) hash = Mix64(hash ^ chunk);
  return hash;
}

struct Options {
  uint64_t seed = 1;
  bool jitter = true;   // false: every delay has its mean, for scripts
  uint64_t steps = 40;  // of the job
  Duration compute = std::chrono::milliseconds(20);
  Duration update = std::chrono::milliseconds(2);
  Duration start = std::chrono::milliseconds(300);  // a worker, from its start to ready
  Duration chunk = std::chrono::milliseconds(2);    // of a transfer
  bool drift = false;                               // nodes' clocks run at speeds of their own
};

struct World {
  World(JobSpec job, const Options& settings)
      : spec(std::move(job)), options(settings), stage(settings.seed, settings.jitter), network(&stage) {}
  JobSpec spec;
  const Options options;
  Stage stage;
  Network network;
  Control* control = nullptr;
  Watch* watch = nullptr;
  std::map<Incarnation, std::shared_ptr<Worker>> workers;  // whose process has begun and not ended
  bool all_deaf = false;                                   // no worker leaves a collective that breaks
  Rank failing_rank = kNoRank;                             // whoever holds it exits in `failing_step`
  Step failing_step;
  Gangs gangs{&network};
  uint64_t steps_taken = 0;  // Steps of coordinator, agents and keepers
  std::shared_ptr<Worker> Find(Incarnation id) const {
    const auto it = workers.find(id);
    return it == workers.end() ? nullptr : it->second;
  }
};

}  // namespace locum::sim
