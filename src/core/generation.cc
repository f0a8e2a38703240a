// One generation: opened by a trigger, frozen, recovered, running, resumed. A trigger at any moment opens the next
// one from the start; workers that are frozen and parked already answer at once.
#include <algorithm>
#include <utility>

#include "core/impl.h"

namespace locum {

// The intent: the next generation with its placement. Everything here is decided before anybody is told, and is on
// disk before anybody is told, since a Persist precedes what this Step sends.
void Coordinator::Impl::Open(const std::vector<Fault>& faults, const std::string& reason) {
  if (ProgramFault(faults) || Capped(faults, reason)) return;
  if (p_.generation.value >= kMaxGeneration) {
    return Fail(1, "the job has had " + std::to_string(p_.generation.value) +
                       " generations, as many as can be numbered; the last trigger: " + reason);
  }
  const bool was_running = p_.phase == JobPhase::kRunning || p_.phase == JobPhase::kStopping;
  if (was_running && !resumed_) ++fruitless_;
  ++opened_;
  if (fruitless_ >= kMaxFruitless || opened_ > kMaxOpened) {
    return Fail(1, std::to_string(std::max(fruitless_, opened_ - 1)) +
                       " generations in a row made no step; the last trigger: " + reason);
  }
  if (move_.active && !returning_) CancelMove(reason);
  for (const Fault& fault : faults) {
    Node& node = nodes_[fault.node];
    Note& note = AddNote("fault_detected", node);
    note.rank = fault.rank;
    note.worker = fault.worker;
    note.reason = fault.reason;
    if (ReportOf(*PlacementOf(fault.rank))) note.step = ReportOf(*PlacementOf(fault.rank))->state.word.step;
    failed_since_[fault.worker] =
        "rank " + std::to_string(fault.rank.value) + " on " + fault.node + ": " + fault.reason;
  }
  if (faults.empty() && p_.generation != Generation(0) && !returning_) AddNote("regroup").reason = reason;
  // The first start and a planned move are no faults; one that comes while they open is.
  const bool is_fault = !faults.empty() || (p_.generation != Generation(0) && !returning_);
  if (!Recovering() || !fault_at_) fault_at_ = is_fault ? std::optional(now_) : std::nullopt;

  if (!std::exchange(unsettled_, true)) unsettled_since_ = now_;
  p_.generation = p_.generation.Next();
  p_.phase = JobPhase::kFreezing;
  p_.recovery_fixed = false;
  phase_since_ = now_;
  resumed_ = broken_ = false;
  round_.clear();
  links_.clear();
  round_again_ = now_;
  plan_ = {};
  Displace(faults);
  const bool target_failed =
      std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) { return fault.node == returning_node_; });
  if (returning_ && target_failed) {
    returning_ = false;
    CancelMove(reason);
  }
  TryPlaceMissing();
}

// Nothing where no fault was, or where it came before this coordinator.
void Coordinator::Impl::AddSinceFault(Note& note) const {
  if (fault_at_) note.figures.emplace_back("since_fault_ns", (now_ - *fault_at_).count());
}

// Every live worker that holds a rank, or held one, must be frozen before R is fixed.
void Coordinator::Impl::ProgressFreeze() {
  if (p_.phase != JobPhase::kFreezing || adopting_) return;
  std::vector<Placement> asked = p_.leaving;
  for (const Placement& p : p_.ranks) {
    if (p.worker != Incarnation()) asked.push_back(p);
  }
  std::vector<Fault> late;
  bool all = true;
  for (const Placement& p : asked) {
    if (Gone(p.worker)) continue;
    const WorkerReport* report = ReportOf(p);
    if (proven_dead_.count(p.worker) || (report && report->life == WorkerLife::kExited)) continue;
    const bool fresh = report && report->state.word.generation == Generation(0) && !p_.history.empty();
    if (report && (fresh || report->state.frozen == p_.generation)) continue;
    all = false;
    const Time due = phase_since_ + T().freeze + T().heartbeat;
    if (now_ >= due) {
      if (LeavingOf(p.worker)) {
        gone_.insert(p.worker);
      } else {
        const Node* node = NodeOf(p);
        late.push_back({p.node, p.rank, p.worker, "it did not answer the freeze in time", false, node && Heard(*node)});
      }
    }
    Want(due);
  }
  if (!late.empty()) return Open(late, late.front().reason);
  // Before the first generation runs there is nothing to lose: any fresh worker holds the first state.
  if (all && !p_.history.empty() && !StateMayExist()) {
    for (const Placement& p : p_.leaving) {
      const Node* node = NodeOf(p);
      if (!Gone(p.worker) || proven_dead_.count(p.worker)) continue;
      const bool heard = node && Heard(*node);
      if (heard) {
        // Back from a silence, it is asked to freeze like everyone, and has as long to answer.
        const Time due = node->heard_since + T().freeze + T().heartbeat;
        if (now_ >= due) continue;
        Want(due);
      }
      // Neither a copy nor the proof that there is none: nothing may be done but wait.
      waiting_for_ = "node " + p.node + ": no live worker holds the state, and " +
                     (heard ? "it is heard again and has not answered yet" : "it is silent but not proved dead");
      return;
    }
    return Fail(kExitStateLost, WhatIsLost());
  }
  const bool placed =
      std::none_of(p_.ranks.begin(), p_.ranks.end(), [](const Placement& p) { return p.worker == Incarnation(); });
  if (!all || !placed) return;
  // Of the dead among them the next look makes faults, and places their ranks anew.
  const bool dead = std::any_of(p_.ranks.begin(), p_.ranks.end(), [&](const Placement& p) {
    const WorkerReport* report = ReportOf(p);
    return proven_dead_.count(p.worker) || (report && report->life == WorkerLife::kExited);
  });
  if (dead) return Want(now_ + kLookAgain);
  FixRecovery();
}

std::string Coordinator::Impl::WhatIsLost() const {
  std::string text = "the state is lost: no live worker holds a complete copy of state " +
                     std::to_string(committed_.value) + " or a later one";
  // By rank, not by incarnation, which is random.
  std::set<std::string> holders;
  for (const auto& [worker, failed] : failed_since_) holders.insert(failed);
  for (const std::string& failed : holders) text += "; " + failed;
  for (const auto& [name, node] : nodes_) {
    if (!node.connected) text += "; " + name + " is gone (" + node.reason + ")";
  }
  return text + ". What the program has saved itself is not touched; start the job again in a new directory";
}

// Whether a worker other than `except` has shown a complete copy in this generation's freeze.
bool Coordinator::Impl::StateMayExist(Incarnation except) const {
  const auto holds = [&](const Placement& p) {
    const WorkerReport* report = ReportOf(p);
    return report && report->life == WorkerLife::kReady && !Gone(p.worker) && p.worker != except &&
           report->state.frozen == p_.generation && InLineage(report->state.holding, p_.history);
  };
  return std::any_of(p_.ranks.begin(), p_.ranks.end(), holds) ||
         std::any_of(p_.leaving.begin(), p_.leaving.end(), holds);
}

void Coordinator::Impl::FixRecovery() {
  std::vector<HeldCopy> copies, unreachable;
  std::vector<RankPlan> members;
  const auto add = [&](const Placement& p) {
    const WorkerReport* report = ReportOf(p);
    const JoinInfo* info = InfoOf(p);
    if (!report || !info || Gone(p.worker) || report->life != WorkerLife::kReady) return;
    if (report->state.frozen != p_.generation || distrusted_.count(p.worker)) return;
    (unreachable_.count(p.worker) ? unreachable : copies)
        .push_back(
            {p.worker, report->state.rank, p.node, info->data_address, report->state.holding, report->state.done});
  };
  for (const Placement& p : p_.ranks) {
    add(p);
    members.push_back({p.rank, p.worker, false, false});
  }
  for (const Placement& p : p_.leaving) add(p);
  if (copies.empty()) copies = std::move(unreachable);
  auto plan = PlanRecovery(copies, members, p_.history);
  if (!plan.ok()) {
    return Fail(1, plan.status().message());
  }
  plan_ = std::move(plan).value();
  if (plan_.step < committed_) {
    return Fail(1, "live ranks hold state " + std::to_string(plan_.step.value) +
                       " at most, but every rank had committed " + std::to_string(committed_.value) +
                       ": a rank has gone back by itself");
  }
  p_.recovery_step = plan_.step;
  p_.recovery_fixed = true;
  p_.phase = JobPhase::kRecovering;
  phase_since_ = now_;
  Note& note = AddNote("recovery_step_fixed");
  note.step = plan_.step;
  note.figures = {{"copies", static_cast<int64_t>(plan_.sources.size())}};
  AddSinceFault(note);
}

void Coordinator::Impl::ProgressRecovery() {
  if (p_.phase != JobPhase::kRecovering || adopting_) return;
  std::vector<HashReport> hashes;
  std::string late;
  for (const RankPlan& member : plan_.ranks) {
    const Placement* p = PlacementOf(member.rank);
    const WorkerReport* report = ReportOf(*p);
    if (!report || report->state.verified.generation != p_.generation) return;
    if (!CameBack(report->state, p_.generation)) {
      late += (late.empty() ? "rank " : ", rank ") + std::to_string(p->rank.value) + " on " + p->node;
    }
    hashes.push_back({member.rank, member.worker, report->state.verified.state_hash, member.pull});
  }
  // Whoever is late may have to be ended. The others would sit in the new group's collective by then, and break as well.
  if (!late.empty()) {
    const Time due = phase_since_ + kLateToTell;
    if (now_ < due) return Want(due);
    waiting_for_ = late + " to come to its next step; it is still in its last one";
    return;
  }
  const bool first = p_.history.empty();
  const HashVerdict verdict = JudgeHashes(hashes, first);
  if (!verdict.agree) {
    if (verdict.undecided) {
      return Fail(1, verdict.reason +
                         "; no majority, so nobody can say which is right. Is something that differs between "
                         "ranks registered as replicated state?");
    }
    for (Incarnation worker : verdict.distrusted) distrusted_.insert(worker);
    AddNote("state_differs").reason = verdict.reason;
    return Open({}, verdict.reason);
  }
  distrusted_.clear();
  for (const RankPlan& member : plan_.ranks) {
    if (!member.pull) continue;
    const Placement* p = PlacementOf(member.rank);
    const Verified& v = ReportOf(*p)->state.verified;
    Note& note = AddNote("state_migrated", nodes_[p->node]);
    note.rank = member.rank;
    note.worker = member.worker;
    note.step = plan_.step;
    const int64_t ns = std::max<int64_t>(1, v.end_ns - v.begin_ns);
    note.figures = {{"bytes", static_cast<int64_t>(v.bytes)},
                    {"duration_ns", ns},
                    {"bytes_per_second",
                     static_cast<int64_t>(v.bytes / std::max<uint64_t>(1, static_cast<uint64_t>(ns) / 1000) * 1000000)},
                    {"retries", v.retries}};
    AddSinceFault(note);
    note.details = {{"state_hash", ToHex(v.state_hash)}, {"source", ToHex(v.source.value)}};
  }
  StartRunning();
}

void Coordinator::Impl::StartRunning() {
  p_.phase = JobPhase::kRunning;
  p_.history.push_back({p_.generation, p_.recovery_step});
  phase_since_ = last_progress_ = now_;
  committed_ = std::max(committed_, p_.recovery_step);
  Note& note = AddNote("generation_started");
  note.step = p_.recovery_step;
  note.figures = {{"world", World()}};
  AddSinceFault(note);
  for (const Placement& p : p_.ranks) {
    note.details.emplace_back("rank_" + std::to_string(p.rank.value), p.node);
  }
}

void Coordinator::Impl::ProgressRunning() {
  if (p_.phase != JobPhase::kRunning && p_.phase != JobPhase::kStopping) return;
  bool all_committed = true, all_done = true;
  int64_t connected_ns = 0, committed_ns = 0;
  ::locum::Step lowest{kMaxStep};
  for (const Placement& p : p_.ranks) {
    const WorkerReport* report = ReportOf(p);
    if (!report) return;
    const WorkerState& s = report->state;
    const bool here = s.word.generation == p_.generation;
    lowest = std::min(lowest, here ? s.word.step : p_.recovery_step);
    // A rank that came straight to its end has nothing left to commit.
    all_committed &= s.first_commit == p_.generation || (here && s.done);
    // No rank commits before all have come to its collective.
    if (s.first_commit == p_.generation) unsettled_ = false;
    all_done &= here && s.done;
    if (s.connected == p_.generation) connected_ns = std::max(connected_ns, s.connected_ns);
    if (s.first_commit == p_.generation) committed_ns = std::max(committed_ns, s.first_commit_ns);
  }
  committed_ = std::max(committed_, lowest);
  if (all_committed && !resumed_) {
    resumed_ = true;
    fruitless_ = opened_ = 0;
    failed_since_.clear();
    Note& note = AddNote("step_resumed");
    note.figures = {{"last_connected_ns", connected_ns}, {"last_committed_ns", committed_ns}};
    AddSinceFault(note);
    AfterResumed();
  }
  if (all_done) {
    if (move_.active) CancelMove("the job has reached its end");
    p_.phase = JobPhase::kFinishing;
    finish_since_ = now_;
    AddNote("job_finishing").reason = "every rank has called Finish";
  }
}

// Of workers that are gone for good nothing need be known.
void Coordinator::Impl::ForgetWorkers() {
  std::set<Incarnation> present;
  for (const auto& [name, node] : nodes_) {
    for (const auto& [slot, info] : node.slots) present.insert(info.worker);
  }
  for (const Placement& p : p_.ranks) present.insert(p.worker);
  for (std::set<Incarnation>* workers : {&proven_dead_, &faulted_, &hung_, &distrusted_, &unreachable_}) {
    std::erase_if(*workers, [&](Incarnation worker) { return !present.count(worker); });
  }
  std::erase_if(last_step_, [&](const auto& at) { return !present.count(at.first); });
}

// The old holders have served; what they held is now elsewhere, in a generation that has committed.
void Coordinator::Impl::AfterResumed() {
  for (const Placement& p : p_.leaving) {
    Node* node = NodeOf(p);
    if (!node) continue;
    SlotInfo& slot = node->slots[p.slot];
    if (slot.worker == p.worker) slot.retire = p.worker;
    if (node->state == NodeState::kHealthy && !HoldsRank(node->name)) node->role = Role::kSpare;
  }
  p_.leaving.clear();
  gone_.clear();
  ForgetWorkers();
  if (!returning_) return;
  returning_ = false;
  Node& node = nodes_[returning_node_];
  node.role = Role::kActive;
  SetState(node, NodeState::kHealthy, "");
  Note& note = AddNote("failback_done", node);
  note.reason = "holds its ranks again";
  note.figures = {{"pause_ns", (now_ - move_.first_parked).count()}};
  move_ = {};
}

}  // namespace locum
