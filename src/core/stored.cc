// Whether a job can be taken up from what is on record. The other rules rely on what is checked here: a rank has a
// place, a placement names a node that is known and a slot that there is, and what counts leaves room to count on.
#include <set>

#include "core/coordinator.h"

namespace locum {
namespace {

constexpr Duration Timeouts::*kWaited[] = {&Timeouts::heartbeat,  &Timeouts::silence, &Timeouts::freeze,
                                           &Timeouts::collective, &Timeouts::park,    &Timeouts::join,
                                           &Timeouts::hang,       &Timeouts::finish,  &Timeouts::adopt};
constexpr Duration Timeouts::*kMayBeZero[] = {&Timeouts::lost_stream_grace, &Timeouts::culprit_grace, &Timeouts::gather,
                                              &Timeouts::grace};

bool InRange(Duration d, Duration least) { return d >= least && d <= kMaxTimeout; }

std::string Name(const Placement& p) { return "rank " + std::to_string(p.rank.value); }

Status CheckPlacement(const Placement& p, const JobSpec& spec, const std::set<std::string>& nodes) {
  if (p.rank.value >= spec.nodes * spec.workers_per_node) return Invalid(Name(p) + " is beyond the job's ranks");
  if (p.slot.value >= spec.workers_per_node) return Invalid(Name(p) + " is in a slot that there is not");
  if (!p.node.empty() && !nodes.count(p.node)) return Invalid(Name(p) + " is on a node that is not known");
  if (p.node.empty() && p.worker != Incarnation()) return Invalid(Name(p) + " has a worker and no node");
  return OkStatus();
}

Status CheckRanks(const PersistentState& s, const std::set<std::string>& nodes) {
  const bool before = s.phase == JobPhase::kGathering, over = s.phase >= JobPhase::kFinished;
  const uint32_t world = s.spec.nodes * s.spec.workers_per_node;
  // A job that has failed at its start has none.
  if (before || (over && s.ranks.empty())) {
    return s.ranks.empty() && s.leaving.empty() ? OkStatus() : Invalid("a job that has not begun has ranks");
  }
  if (s.ranks.size() != world) {
    return Invalid("there are " + std::to_string(s.ranks.size()) + " ranks instead of " + std::to_string(world));
  }
  uint32_t next = 0;
  for (const Placement& p : s.ranks) {
    LOCUM_RETURN_IF_ERROR(CheckPlacement(p, s.spec, nodes));
    if (p.rank.value != next++) return Invalid(Name(p) + " is not where it belongs");
    const bool placed = p.worker != Incarnation();
    if (!placed && !over && s.phase != JobPhase::kFreezing) return Invalid(Name(p) + " has no worker");
  }
  for (const Placement& p : s.leaving) {
    LOCUM_RETURN_IF_ERROR(CheckPlacement(p, s.spec, nodes));
    if (p.node.empty()) return Invalid(Name(p) + " was left by nobody");
  }
  return OkStatus();
}

}  // namespace

Status CheckSpec(const JobSpec& spec) {
  if (spec.nodes < 1 || spec.workers_per_node < 1) return Invalid("the job has no workers");
  if (spec.nodes > kMaxWorld || spec.workers_per_node > kMaxWorld ||
      spec.nodes * uint64_t{spec.workers_per_node} > kMaxWorld) {
    return Invalid("the job has more than " + std::to_string(kMaxWorld) + " ranks");
  }
  for (Duration Timeouts::*field : kWaited) {
    if (!InRange(spec.timeouts.*field, Duration(1))) return Invalid("a time-out is out of range");
  }
  for (Duration Timeouts::*field : kMayBeZero) {
    if (!InRange(spec.timeouts.*field, Duration(0))) return Invalid("a time-out is out of range");
  }
  if (spec.limits.recoveries < 1) return Invalid("the limits allow no recovery");
  return InRange(spec.limits.window, Duration(0)) ? OkStatus() : Invalid("the limits' window is out of range");
}

Status CheckStored(const PersistentState& s) {
  LOCUM_RETURN_IF_ERROR(CheckSpec(s.spec));
  if (s.term.value > kMaxTerm) return Invalid("the term is out of range");
  if (s.generation.value > kMaxGeneration) return Invalid("the generation is out of range");
  if (s.recovery_step.value > kMaxStep) return Invalid("the recovery step is out of range");
  std::set<std::string> nodes;
  for (const PersistentNode& node : s.nodes) {
    if (node.name.empty()) return Invalid("a node has no name");
    if (!nodes.insert(node.name).second) return Invalid("node '" + node.name + "' is there twice");
  }
  LOCUM_RETURN_IF_ERROR(CheckRanks(s, nodes));
  Generation before;
  for (const Recovered& r : s.history) {
    if (r.generation <= before || r.generation > s.generation || r.step.value > kMaxStep) {
      return Invalid("the history of generations is not in order");
    }
    before = r.generation;
  }
  const bool runs = s.phase == JobPhase::kRunning || s.phase == JobPhase::kStopping || s.phase == JobPhase::kFinishing;
  if (runs && before != s.generation) return Invalid("the generation that runs is not in the history");
  return OkStatus();
}

}  // namespace locum
