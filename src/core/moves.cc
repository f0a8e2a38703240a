// Planned moves: all ranks stop before the same step, one of them changes its holder, and nothing is lost.
#include <algorithm>

#include "core/impl.h"

namespace locum {

Status Coordinator::Impl::CheckFailback(const std::string& name) const {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) {
    std::string known;
    for (const auto& [other, node] : nodes_) known += (known.empty() ? "" : ", ") + other;
    return Invalid("there is no node '" + name + "'; the nodes are " + known);
  }
  const Node& node = found->second;
  bool has_home = false, away = false;
  for (const Placement& p : p_.ranks) {
    if (p.home != name) continue;
    has_home = true;
    away |= p.node != name;
  }
  if (!has_home) return Invalid("no rank has its home on " + name);
  if (!away) return Invalid(name + " already holds its ranks");
  if (p_.phase == JobPhase::kStopping)
    return Unavailable("another planned move is under way; try again when it is done");
  if (p_.phase != JobPhase::kRunning || !resumed_) {
    return Unavailable(std::string("the job is ") + JobPhaseName(p_.phase) + "; try again when it is running");
  }
  if (HoldsRank(name)) return Invalid(name + " holds other ranks at present");
  if (!NodeReady(node)) return Unavailable(name + " cannot take its ranks back yet: " + WhyNotReady(node));
  if (node.state != NodeState::kProbation && node.state != NodeState::kHealthy) {
    return Unavailable(name + " is " + NodeStateName(node.state) +
                       (node.reason.empty() ? "" : " (" + node.reason + ")") + "; it must be healthy or on probation");
  }
  if (!UsableSpare(node)) return Unavailable(name + " still ends its former worker; try again in a moment");
  return OkStatus();
}

void Coordinator::Impl::On(const FailbackRequested& e) {
  const Status status = stopped_ || ended_ ? Unavailable("the coordinator is stopping") : CheckFailback(e.node);
  out_.emplace_back(Answer{e.request, status});
  if (!status.ok()) return;
  move_ = {};
  move_.active = true;
  move_.node = e.node;
  p_.phase = JobPhase::kStopping;
  phase_since_ = now_;
  AddNote("failback_started", nodes_[e.node]).reason = "asked for by an operator";
}

void Coordinator::Impl::CancelMove(const std::string& why) {
  Note& note = AddNote("failback_cancelled", nodes_[move_.node]);
  note.reason = why;
  move_ = {};
  if (p_.phase == JobPhase::kStopping) p_.phase = JobPhase::kRunning;
}

void Coordinator::Impl::ProgressStop() {
  if (p_.phase != JobPhase::kStopping) return;
  const Node& target = nodes_[move_.node];
  if (!UsableSpare(target)) return CancelMove(move_.node + " is no longer ready: " + WhyNotReady(target));
  ::locum::Step furthest{};
  bool answered = true, all_parked = true, any_parked = false, beyond = false;
  for (const Placement& p : p_.ranks) {
    const WorkerReport* report = ReportOf(p);
    if (!report) return;
    const WorkerState& s = report->state;
    furthest = std::max(furthest, std::max(s.starting, s.word.step));
    const bool parked = s.position == Position::kParked && s.word.step == move_.stop_at && s.stop_at == move_.stop_at;
    all_parked &= parked;
    any_parked |= parked;
    answered &= s.stop_at == move_.stop_at;
    beyond |= s.stop_at == move_.stop_at && s.starting >= move_.stop_at && !parked;
  }
  if (any_parked && move_.first_parked == Time{}) move_.first_parked = now_;
  if (move_.stop_at == kNoStop || beyond) {
    // Someone has begun the step before it saw the stop: the stop is void, and the next one leaves more room.
    move_.margin = move_.margin == 0 ? 1 : std::min<uint64_t>(move_.margin * 2, 1u << 20);
    if (furthest.value + move_.margin >= kMaxStep) return CancelMove("a rank is at the last step that can be numbered");
    move_.stop_at = ::locum::Step(furthest.value + move_.margin);
    move_.first_parked = Time{};
    return;
  }
  if (!answered || !all_parked) return;
  if (move_.first_parked == Time{}) move_.first_parked = now_;
  AddNote("ranks_parked").step = move_.stop_at;
  for (Placement& p : p_.ranks) {
    if (p.home != move_.node || p.node == move_.node) continue;
    p_.leaving.push_back(p);
    p.node = move_.node;
    p.slot = Slot(p.rank.value % p_.spec.workers_per_node);
    p.worker = target.slots.at(p.slot).worker;
  }
  returning_ = true;
  returning_node_ = move_.node;
  Open({}, "planned move to " + move_.node);
}

}  // namespace locum
