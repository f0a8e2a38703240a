// Facts about nodes and workers: who is there, who is ready, who fits.
#include <algorithm>
#include <utility>

#include "core/impl.h"

namespace locum {

Node* Coordinator::Impl::ByStream(StreamId stream) {
  for (auto& [name, node] : nodes_) {
    if (node.connected && node.stream == stream) return &node;
  }
  return nullptr;
}

// In calm a node reports seldom, and its silence says little. When training stands still it is asked to report quickly,
// and has from then on no longer than timeouts.silence.
Time Coordinator::Impl::SilentAt(const Node& node) const { return LastSign(node) + Patience(node); }

Time Coordinator::Impl::LastSign(const Node& node) const {
  return AskedToHurry(node) ? std::max(node.last_heard, node.quick_since) : node.last_heard;
}

Duration Coordinator::Impl::Patience(const Node& node) const {
  return AskedToHurry(node) ? T().silence : std::max(T().silence, 3 * T().heartbeat);
}

void Coordinator::Impl::Hear(Node& node) {
  if (!Heard(node)) node.heard_since = now_;
  node.last_heard = now_;
}

void Coordinator::Impl::SetState(Node& node, NodeState state, const std::string& reason) {
  if (node.state == state && node.reason == reason) return;
  const bool changed = node.state != state;
  node.state = state;
  node.reason = reason;
  if (!changed) return;
  Note& note = AddNote("node_state", node);
  note.reason = reason;
  note.details = {{"state", NodeStateName(state)}};
}

// Why this node may not come in; empty: it may. `stranger`: it trains for another cluster.
std::string Coordinator::Impl::WhyRefused(const NodeHello& h, bool stranger) const {
  if (h.protocol != kProtocolVersion) {
    return "node '" + h.name + "' speaks protocol " + std::to_string(h.protocol) + " (locum " + h.version +
           "), the coordinator speaks " + std::to_string(kProtocolVersion) + " (locum " + kVersion +
           "): install the same version";
  }
  if (h.name.empty() || h.name.size() > 255) return "a node needs a name of 1 to 255 bytes (--name)";
  if (stranger && p_.phase != JobPhase::kGathering) {
    return "node '" + h.name + "' trains for another coordinator, of job " + h.job + "; this one leads job " +
           p_.spec.job;
  }
  if (!stranger && !h.job.empty() && h.job != p_.spec.job) {
    return "node '" + h.name + "' serves job " + h.job + ", this coordinator's job is " + p_.spec.job;
  }
  if (!stranger && h.term > p_.term) {
    return "node '" + h.name + "' has obeyed term " + std::to_string(h.term.value) + ", this coordinator has " +
           std::to_string(p_.term.value) + ": a newer coordinator leads this job";
  }
  if (ended_ || Over()) return "job " + p_.spec.job + " has ended";
  if (stopped_) return "the coordinator of job " + p_.spec.job + " is stopping";
  const auto found = nodes_.find(h.name);
  if (found == nodes_.end() && nodes_.size() >= static_cast<size_t>(kMaxNodes)) {
    return "the coordinator knows " + std::to_string(kMaxNodes) + " nodes already, as many as it can";
  }
  if (found != nodes_.end() && found->second.connected && found->second.hello.keeper != h.keeper &&
      Heard(found->second)) {
    return "a node named '" + h.name + "' is connected from " + found->second.hello.address + " (keeper process " +
           std::to_string(found->second.hello.keeper_pid) + "): choose another --name";
  }
  return "";
}

void Coordinator::Impl::On(const NodeConnected& e) {
  const NodeHello& h = e.hello;
  // Terms of the cluster that is taken over say nothing here, but its nodes obey no lower one.
  const bool theirs = h.cluster != Incarnation() && h.cluster == p_.adopts;
  if (theirs && !Over() && !ended_ && h.term.value <= kMaxTerm / 2) p_.term = std::max(p_.term, h.term.Next());
  const bool taken_over = theirs && p_.phase != JobPhase::kGathering;
  const bool stranger = h.cluster != Incarnation() && h.cluster != p_.cluster && !taken_over;
  const bool known = nodes_.count(h.name) != 0;
  if (const std::string why = WhyRefused(h, stranger); !why.empty()) {
    // Only a job's own end is a reason for its nodes to end what they run.
    const bool end = !stranger && (ended_ || Over());
    if (end && known) nodes_[h.name].told_end = true;
    out_.emplace_back(RefuseNode{e.stream, why, end});
    // It asks again each second.
    if (std::exchange(refused_[h.name], why) == why) return;
    if (refused_.size() > kMaxRefused) refused_.erase(refused_.begin());
    Note& note = AddNote("node_refused");
    note.node = h.name;
    note.reason = why;
    return;
  }
  refused_.erase(h.name);
  Node& node = nodes_[h.name];
  const bool same_keeper = node.hello.keeper == h.keeper;
  node.name = h.name;
  if (known && !same_keeper) {
    // The keeper's lock vouches that what the old one ran is gone (see ARCHITECTURE.md, "Who proves a death").
    for (const auto& [slot, info] : node.slots) {
      if (info.worker != Incarnation()) proven_dead_.insert(info.worker);
    }
    for (const Placement& p : p_.ranks) {
      if (p.node == h.name && p.worker != Incarnation()) proven_dead_.insert(p.worker);
    }
    for (const Placement& p : p_.leaving) {
      if (p.node == h.name) proven_dead_.insert(p.worker);
    }
    node.slots.clear();
    node.infos.clear();
    node.echo_nonce = 0;
    if (node.state != NodeState::kJoining && !HoldsRank(node.name)) {
      SetState(node, NodeState::kRepairing, "started again");
      node.role = Role::kNone;
    }
  }
  node.hello = h;
  node.stream = e.stream;
  Hear(node);
  node.heard_since = now_;
  node.connected = node.seen = true;
  node.leaving = node.stranger = false;
  node.reported = false;
  node.order_sent = false;
  for (uint32_t s = 0; s < p_.spec.workers_per_node; ++s) node.slots[Slot(s)];
  Note& note = AddNote(known && same_keeper ? "node_connected_again" : "node_joined", node);
  note.details = {{"address", h.address}, {"version", h.version}, {"dir", h.dir}};
  note.figures = {{"keeper_pid", h.keeper_pid}, {"agent_pid", h.agent_pid}};

  if (stranger && h.cluster != p_.adopts) {
    // It trains, and a database that knows nothing of it is no reason to stop it.
    node.stranger = true;
    return;
  }
  WelcomeStranger(node);
}

void Coordinator::Impl::On(const NodeLost& e) {
  Node* node = ByStream(e.stream);
  if (!node) return;
  node->connected = false;
  node->lost_at = now_;
  AddNote("node_stream_lost", *node).reason = e.reason;
  if (node->leaving && !Over() && !HoldsRank(node->name)) {
    node->role = Role::kNone;
    SetState(*node, NodeState::kLeft, "its agent was told to end");
  }
}

void Coordinator::Impl::On(const WorkerReady& e) {
  Node* node = ByStream(e.stream);
  if (!node) return;
  Hear(*node);
  const auto slot = node->slots.find(e.slot);
  if (slot == node->slots.end()) return;
  node->infos[e.slot] = {e.worker, e.info};
  if (slot->second.worker == e.worker) {
    slot->second.info = e.info;
    CheckConsistency(*node, e.slot);
  }
}

void Coordinator::Impl::On(const NodeReported& e) {
  Node* node = ByStream(e.stream);
  if (!node) return;
  Hear(*node);
  node->reported = true;
  node->usage = e.report.usage;
  node->leaving = e.report.leaving;
  std::set<Slot> present;
  for (const WorkerReport& report : e.report.workers) {
    if (!node->slots.count(report.slot)) continue;
    present.insert(report.slot);
    TakeReport(*node, report);
  }
  for (auto& [slot, info] : node->slots) {
    if (present.count(slot) || info.worker == Incarnation()) continue;
    proven_dead_.insert(info.worker);
    SlotInfo empty;
    empty.failed_starts = info.failed_starts;
    empty.restart_at = info.restart_at;
    info = std::move(empty);
  }
}

void Coordinator::Impl::TakeReport(Node& node, const WorkerReport& report) {
  SlotInfo& slot = node.slots[report.slot];
  if (slot.worker != report.worker) {
    // One slot runs one worker at a time: the keeper tells of a new one only after the old one's end.
    if (slot.worker != Incarnation()) proven_dead_.insert(slot.worker);
    slot.worker = report.worker;
    slot.info.reset();
    slot.report.reset();
    slot.refuse.clear();
    slot.started_at = now_;
    slot.seen_alive = false;
  }
  slot.seen_alive |= report.life != WorkerLife::kExited;
  const bool was_ready = slot.Ready();
  const bool was_exited = slot.Exited();
  slot.report = report;
  const auto info = node.infos.find(report.slot);
  if (!slot.info && info != node.infos.end() && info->second.first == report.worker) {
    slot.info = info->second.second;
    CheckConsistency(node, report.slot);
  }
  if (!was_ready && slot.Ready()) {
    slot.failed_starts = 0;
    Note& note = AddNote("worker_ready", node);
    note.worker = report.worker;
    note.figures = {{"slot", report.slot.value}, {"pid", report.pid}};
  }
  if (slot.Exited() && !was_exited) {
    proven_dead_.insert(report.worker);
    Note& note = AddNote("worker_exited", node);
    note.worker = report.worker;
    note.rank = report.state.rank;
    note.reason = report.exit ? report.exit->what : "gone";
    note.figures = {{"slot", report.slot.value}, {"pid", report.pid}};
    if (report.exit && !report.exit->stopped && !slot.info) {
      ++slot.failed_starts;
      slot.restart_at = now_ + std::chrono::seconds(slot.failed_starts);
    } else if (now_ - slot.started_at < kProvenLife && !PlacementOf(node.name, report.slot, report.worker)) {
      slot.restart_at = now_ + kRestartDelay;
    }
  }
  if (report.stuck && proven_dead_.insert(report.worker).second) {
    Note& note = AddNote("worker_stuck", node);
    note.worker = report.worker;
    note.reason = kStuck;
    note.figures = {{"slot", report.slot.value}, {"pid", report.pid}};
  }
  // Given up as silent, it answers after all; what it holds may be the last copy.
  if (p_.phase == JobPhase::kFreezing && Gone(report.worker) && LeavingOf(report.worker) && slot.Ready() &&
      report.state.frozen == p_.generation) {
    gone_.erase(report.worker);
  }
  if (const auto last = last_step_.find(report.worker);
      last == last_step_.end() || last->second < report.state.word.step) {
    last_step_[report.worker] = report.state.word.step;
    last_progress_ = now_;
    stalled_ = false;
  }
}

void Coordinator::Impl::On(const Paused& e) {
  AddNote("coordinator_paused").figures = {{"gap_ns", e.gap.count()}};
  RestartDeadlines();
}

// Nobody could be heard, or told anything, for a while.
void Coordinator::Impl::RestartDeadlines() {
  for (auto& [name, node] : nodes_) {
    node.last_heard = node.heard_since = node.quick_since = now_;
    if (!node.connected) node.lost_at = now_;
  }
  phase_since_ = last_progress_ = broken_since_ = began_ = finish_since_ = adopt_since_ = kept_since_ = now_;
  if (Over()) LetNodesEnd();
}

void Coordinator::Impl::On(const StopRequested& e) {
  stopped_ = true;
  if (!Over()) p_.reason = "stopped by " + e.reason;
  AddNote("coordinator_stopped").reason = e.reason;
}

bool Coordinator::Impl::NodeReady(const Node& node) const {
  return node.connected && !node.slots.empty() &&
         std::all_of(node.slots.begin(), node.slots.end(), [](const auto& s) { return s.second.Ready(); });
}

bool Coordinator::Impl::UsableSpare(const Node& node) const {
  if (!NodeReady(node) || HoldsRank(node.name) || !Heard(node)) return false;
  for (const auto& [slot, info] : node.slots) {
    // A worker that has left a generation still holds the old state; only a fresh one may take a rank.
    if (LeavingOf(info.worker) || Gone(info.worker) || !MayTakeRank(info.worker)) return false;
    if (info.report->state.word.generation != Generation(0)) return false;
  }
  return node.state == NodeState::kHealthy || node.state == NodeState::kProbation || node.state == NodeState::kJoining;
}

bool Coordinator::Impl::SpareReady() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& n) { return UsableSpare(n.second); });
}

std::string Coordinator::Impl::WhyNotReady(const Node& node) const {
  if (!node.connected) return "it is not connected";
  if (!node.reason.empty() && node.state == NodeState::kQuarantined) return node.reason;
  for (const auto& [slot, info] : node.slots) {
    if (!info.refuse.empty()) return info.refuse;
    if (!info.Ready()) return "its worker in slot " + std::to_string(slot.value) + " is not ready";
  }
  return "";
}

}  // namespace locum
