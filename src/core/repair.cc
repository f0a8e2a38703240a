// What brings a node back: a fresh worker where one has ended, then a handshake over the node's own link.
#include <algorithm>

#include "core/impl.h"

namespace locum {

bool Coordinator::Impl::WantsFreshWorkers() const {
  return p_.phase == JobPhase::kGathering || (p_.phase == JobPhase::kRunning && resumed_) || !waiting_for_.empty();
}

// A live worker of an older generation that lost its rank while nobody could reach it.
bool Coordinator::Impl::Stale(const Node& node, Slot slot, const SlotInfo& info) const {
  return info.report && !info.Exited() && info.report->state.word.generation != Generation(0) &&
         !PlacementOf(node.name, slot, info.worker) && !LeavingOf(info.worker);
}

// A fresh worker where an idle one has ended. Not while a recovery needs the processors, unless it is what the
// recovery waits for.
void Coordinator::Impl::RestartSlots() {
  if (p_.phase == JobPhase::kFinishing || p_.phase == JobPhase::kGathering) return;
  for (auto& [name, node] : nodes_) {
    const bool stuck = std::any_of(node.slots.begin(), node.slots.end(),
                                   [](const auto& s) { return s.second.report && s.second.report->stuck; });
    if (!Heard(node) || node.leaving || node.stranger || stuck) continue;
    const bool wanted = WantsFreshWorkers();
    for (auto& [slot, info] : node.slots) {
      // A recovery that waits for a spare needs its place more than its copy, once there is a better one.
      const bool spared = !Recovering() || (wanted && StateMayExist());
      if (spared && Stale(node, slot, info)) info.retire = info.worker;
      // A blamed worker makes room for a fresh one as soon as its copy is not the only one.
      const bool blamed = info.worker != Incarnation() && faulted_.count(info.worker) && !info.Exited();
      if (blamed && wanted && info.worker != kept_ && StateMayExist(info.worker)) info.retire = info.worker;
      const bool over = info.Exited() || !info.refuse.empty();
      if (!over || info.retire == info.worker || PlacementOf(name, slot, info.worker)) continue;
      if (!info.refuse.empty() && node.state != NodeState::kQuarantined) {
        SetState(node, NodeState::kQuarantined, info.refuse);
      }
      if (info.failed_starts >= kMaxFailedStarts && node.state != NodeState::kQuarantined) {
        SetState(node, NodeState::kQuarantined,
                 "its worker failed " + std::to_string(info.failed_starts) + " times before it was ready: " +
                     (info.report && info.report->exit ? info.report->exit->what : "gone"));
      }
      if (node.state == NodeState::kQuarantined || !wanted) continue;
      if (now_ < info.restart_at) {
        Want(info.restart_at);
        continue;
      }
      info.retire = info.worker;
    }
    if (node.state == NodeState::kFailed && wanted && !HoldsRank(name)) {
      SetState(node, NodeState::kRepairing, "starting a fresh worker");
    }
    if (node.state == NodeState::kQuarantined) node.role = Role::kNone;
  }
}

// Whom a node without ranks shakes hands with: a rank's worker, or one that has left its rank and serves its state.
std::optional<Peer> Coordinator::Impl::EchoPeer(const Node& node) const {
  for (const std::vector<Placement>* placements : {&p_.ranks, &p_.leaving}) {
    for (const Placement& p : *placements) {
      const JoinInfo* info = InfoOf(p);
      const WorkerReport* report = ReportOf(p);
      const bool lives = report && report->life == WorkerLife::kReady && !report->stuck;
      if (info && lives && p.node != node.name) return Peer{p.rank, p.worker, info->data_address};
    }
  }
  return std::nullopt;
}

// A node that comes back, or comes late, shows over its own link that it works before it counts as a spare.
void Coordinator::Impl::Handshakes() {
  if (p_.phase == JobPhase::kGathering || p_.phase == JobPhase::kFinishing) return;
  for (auto& [name, node] : nodes_) {
    const bool coming =
        node.state == NodeState::kRepairing || node.state == NodeState::kVerifying || node.state == NodeState::kJoining;
    if (!coming || HoldsRank(name) || !NodeReady(node)) continue;
    if (now_ < node.echo_at) {
      Want(node.echo_at);
      continue;
    }
    if (node.echo_nonce == 0) {
      node.echo_nonce = ++last_nonce_;
      if (node.state == NodeState::kRepairing)
        SetState(node, NodeState::kVerifying, "its worker is ready; echo on its link");
    }
    const Echo& echo = node.slots.begin()->second.report->state.echo;
    const bool alone = Recovering() && !EchoPeer(node);  // nobody is left to shake hands with
    if (!alone && echo.nonce != node.echo_nonce) continue;
    if (!alone && !echo.ok) {
      AddNote("handshake_failed", node).reason = echo.error;
      node.echo_nonce = 0;
      node.echo_at = now_ + kEchoRetry;
      continue;
    }
    node.role = Role::kSpare;
    Note& note = AddNote(node.state == NodeState::kJoining ? "spare_ready" : "node_repaired", node);
    if (!alone) note.figures = {{"echo_bytes", static_cast<int64_t>(echo.bytes)}, {"echo_ns", echo.duration_ns}};
    note.reason = std::string("version, fingerprint and layout match; ") +
                  (alone ? "no other node is there for an echo" : "its link returned the echo unchanged");
    const bool repaired = node.state != NodeState::kJoining;
    SetState(node, repaired ? NodeState::kProbation : NodeState::kHealthy, repaired ? "repaired" : "");
    node.echo_nonce = 0;
  }
}

}  // namespace locum
