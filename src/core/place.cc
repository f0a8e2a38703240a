// Who takes the ranks that have lost their worker: a fresh worker on the same node, a holder that was leaving, a spare,
// and at last anyone who lives.
#include <algorithm>

#include "core/impl.h"

namespace locum {

// Takes the workers that failed out of their ranks. A fault of the worker alone leaves the rank with its node, which
// starts another one; else all the node's ranks move.
void Coordinator::Impl::Displace(const std::vector<Fault>& faults) {
  std::map<std::string, std::string> failed;
  for (const Fault& fault : faults) {
    if (fault.worker != Incarnation()) (fault.answers ? faulted_ : gone_).insert(fault.worker);
    if (fault.hung) hung_.insert(fault.worker);
    if (!MayRestartHere(fault)) failed.emplace(fault.node, fault.reason);
  }
  for (const auto& [node, reason] : failed) FailNode(node, reason);
  for (const Fault& fault : faults) {
    if (failed.count(fault.node)) continue;
    nodes_[fault.node].restarts.push_back(now_);
    ClearWorker(fault);
  }
}

void Coordinator::Impl::ClearWorker(const Fault& fault) {
  Placement& p = *PlacementOf(fault.rank);
  if (!proven_dead_.count(p.worker) && !LeavingOf(p.worker)) p_.leaving.push_back(p);
  p.worker = Incarnation();
  Note& note = AddNote("restart_in_place", nodes_[p.node]);
  note.rank = p.rank;
  note.worker = fault.worker;
  note.reason = "its node starts another worker";
}

// A silent node takes all its ranks with it; on one that is heard, the other workers still hold state and serve it.
void Coordinator::Impl::FailNode(const std::string& name, const std::string& reason) {
  Node& node = nodes_[name];
  node.role = Role::kNone;
  node.suspect_noted = false;
  SetState(node, NodeState::kFailed, reason);
  for (Placement& p : p_.ranks) {
    if (p.node != name) continue;
    p.node.clear();
    if (p.worker == Incarnation()) continue;
    if (!Heard(node)) gone_.insert(p.worker);
    Placement left = p;
    left.node = name;
    if (!proven_dead_.count(p.worker) && !LeavingOf(p.worker)) p_.leaving.push_back(left);
    p.worker = Incarnation();
  }
}

// Ranks that wait for a fresh worker of their own node. Returns what is waited for.
std::string Coordinator::Impl::PlaceInPlace() {
  std::map<std::string, std::string> failed;
  std::string waits, last;
  for (Placement& p : p_.ranks) {
    if (p.node.empty() || p.worker != Incarnation()) continue;
    Node& node = nodes_[p.node];
    if (const std::string why = WhyNotInPlace(p); !why.empty()) {
      failed.emplace(p.node, why);
      continue;
    }
    const SlotInfo& slot = node.slots[p.slot];
    const bool fresh = slot.Ready() && !LeavingOf(slot.worker) && !Gone(slot.worker) && MayTakeRank(slot.worker) &&
                       slot.report->state.word.generation == Generation(0);
    if (fresh) {
      p.worker = slot.worker;
      Note& note = AddNote("worker_replaced", node);
      note.rank = p.rank;
      note.worker = p.worker;
      AddSinceFault(note);
      continue;
    }
    Want(now_ < phase_since_ + T().freeze ? phase_since_ + T().freeze : phase_since_ + T().join);
    if (HoldsLastCopy(p)) {
      last = "a spare to take rank " + std::to_string(p.rank.value) + ": the worker on " + p.node +
             " is at fault, and holds the last copy of the state";
      continue;
    }
    waits += (waits.empty() ? "rank " : ", rank ") + std::to_string(p.rank.value) + " on " + p.node;
  }
  for (const auto& [name, why] : failed) {
    Note& note = AddNote("restart_failed", nodes_[name]);
    note.reason = why;
    FailNode(name, why);
  }
  if (!last.empty()) return last;
  return waits.empty() ? "" : "a fresh worker for " + waits;
}

// The slot is taken by the worker that was blamed, and nobody else has shown a copy while all had time to.
bool Coordinator::Impl::HoldsLastCopy(const Placement& p) const {
  const auto slot = nodes_.at(p.node).slots.find(p.slot);
  if (slot == nodes_.at(p.node).slots.end()) return false;
  const Incarnation worker = slot->second.worker;
  return now_ >= phase_since_ + T().freeze && faulted_.count(worker) && !slot->second.Exited() && StateMayExist() &&
         !StateMayExist(worker);
}

// Why the node of a rank without worker cannot give it one; empty: it can, or may still.
std::string Coordinator::Impl::WhyNotInPlace(const Placement& p) const {
  const Node& node = nodes_.at(p.node);
  if (node.leaving) return "the node is leaving";
  if (node.state == NodeState::kQuarantined) return node.reason;
  const auto slot = node.slots.find(p.slot);
  if (slot != node.slots.end() && !slot->second.refuse.empty()) return slot->second.refuse;
  if (slot != node.slots.end() && slot->second.failed_starts > 0) {
    const auto& report = slot->second.report;
    return "its fresh worker ended before it was ready: " + (report && report->exit ? report->exit->what : "gone");
  }
  if (slot != node.slots.end() && slot->second.report && slot->second.report->stuck) return kStuck;
  if (HoldsLastCopy(p) && SpareReady()) {
    return "the worker there is at fault and holds the last copy, so it cannot make room";
  }
  if (now_ >= phase_since_ + T().join) return "its fresh worker has not joined within timeouts.join";
  return "";
}

// Ranks without a holder, a node's ranks together: back to a holder that was leaving in a planned move, else to a
// spare, else to a node whose former workers live.
void Coordinator::Impl::TryPlaceMissing() {
  if (p_.phase != JobPhase::kFreezing || adopting_) return;
  if (const std::string what = PlaceInPlace(); !what.empty()) waiting_for_ = what;
  std::map<uint32_t, std::vector<Placement*>> groups;
  for (Placement& p : p_.ranks) {
    if (p.node.empty()) groups[p.rank.value / p_.spec.workers_per_node].push_back(&p);
  }
  if (groups.empty()) return;
  std::string ranks;
  for (const auto& [index, group] : groups) {
    if (RestoreHolder(group) || PlaceOnSpare(group) || PlaceOnFormer(group)) continue;
    for (const Placement* p : group) ranks += (ranks.empty() ? "" : ", ") + std::to_string(p->rank.value);
  }
  if (!ranks.empty()) waiting_for_ = "a spare to take rank " + ranks;
}

bool Coordinator::Impl::RestoreHolder(const std::vector<Placement*>& group) {
  std::vector<Placement> old;
  for (const Placement* p : group) {
    for (const Placement& l : p_.leaving) {
      const Node* node = NodeOf(l);
      const WorkerReport* report = ReportOf(l);
      if (l.rank == p->rank && node && node->state == NodeState::kHealthy && node->connected && report &&
          report->life == WorkerLife::kReady && !Gone(l.worker) && MayTakeRank(l.worker)) {
        old.push_back(l);
        break;
      }
    }
  }
  if (old.size() != group.size()) return false;
  for (size_t i = 0; i < group.size(); ++i) {
    *group[i] = old[i];
    std::erase_if(p_.leaving, [&](const Placement& l) { return l.worker == old[i].worker; });
    nodes_[old[i].node].role = Role::kActive;
    AddNote("rank_kept", nodes_[old[i].node]).rank = old[i].rank;
  }
  return true;
}

bool Coordinator::Impl::PlaceOnSpare(const std::vector<Placement*>& group) {
  Node* best = nullptr;
  for (auto& [name, node] : nodes_) {
    if (!UsableSpare(node)) continue;
    // One that has never failed before one that was repaired; then by name.
    const auto worse = [](const Node& n) { return n.state == NodeState::kProbation; };
    if (!best || (worse(*best) && !worse(node)) || (worse(*best) == worse(node) && NaturalLess(name, best->name))) {
      best = &node;
    }
  }
  if (!best) return false;
  best->role = Role::kActive;
  SetState(*best, NodeState::kHealthy, "");
  for (Placement* p : group) {
    p->node = best->name;
    p->slot = Slot(p->rank.value % p_.spec.workers_per_node);
    p->worker = best->slots[p->slot].worker;
    Note& note = AddNote("spare_activated", *best);
    note.rank = p->rank;
    note.worker = p->worker;
    note.reason = "takes rank " + std::to_string(p->rank.value);
    AddSinceFault(note);
  }
  return true;
}

// The last resort: workers that have left the job but live, beside fresh ones, on any node that is heard. A rank is
// only learnt from NextStep, so any of them can take any.
bool Coordinator::Impl::PlaceOnFormer(const std::vector<Placement*>& group) {
  for (auto& [name, node] : nodes_) {
    if (HoldsRank(name) || !NodeReady(node) || node.state == NodeState::kQuarantined) continue;
    if (!Heard(node)) continue;
    const bool former = std::any_of(node.slots.begin(), node.slots.end(),
                                    [&](const auto& s) { return LeavingOf(s.second.worker) != nullptr; });
    const bool fit =
        std::all_of(node.slots.begin(), node.slots.end(), [&](const auto& s) { return MayTakeRank(s.second.worker); });
    if (!former || !fit) continue;
    node.role = Role::kActive;
    SetState(node, NodeState::kHealthy, "");
    for (Placement* p : group) {
      p->node = name;
      p->slot = Slot(p->rank.value % p_.spec.workers_per_node);
      p->worker = node.slots.at(p->slot).worker;
      gone_.erase(p->worker);
      std::erase_if(p_.leaving, [&](const Placement& l) { return l.worker == p->worker; });
      Note& note = AddNote("rank_kept", node);
      note.rank = p->rank;
      note.worker = p->worker;
    }
    return true;
  }
  return false;
}

}  // namespace locum
