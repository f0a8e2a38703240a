// Who failed. Evidence is, from strong to weak: an exit seen by the node's keeper; a new keeper where an old one
// was; a lost stream together with a broken collective; silence while training stands still. A node that is
// silent while its job commits is only suspect: a commit proves every worker of the generation alive.
#include <algorithm>
#include <utility>

#include "core/impl.h"

namespace locum {

void Coordinator::Impl::Detect() {
  if (p_.phase != JobPhase::kRunning && p_.phase != JobPhase::kStopping && !Recovering()) return;
  if (adopting_) {
    const bool all_back = std::all_of(p_.ranks.begin(), p_.ranks.end(), [&](const Placement& p) {
      const Node* node = NodeOf(p);
      return !node || p.node.empty() || (node->connected && node->reported);
    });
    if (!all_back && now_ < began_ + T().adopt) {
      waiting_for_ = "the nodes of generation " + std::to_string(p_.generation.value) + " to come back";
      return Want(began_ + T().adopt);
    }
    adopting_ = false;
    AddNote("job_adopted").reason =
        all_back ? "every node of the generation is back" : "not every node came back in time";
    // A generation that was opening is opened anew under a number of its own.
    if (Recovering()) return Open({}, "a new coordinator found a recovery under way");
  }
  DetectWorkers();
  if (capped_.empty()) DetectBroken();
  if (capped_.empty()) DetectLostWhileOpening();
  DetectSilence();
  DetectIdle();
  if (!capped_.empty()) return;  // why training stands still is known
  DetectHang();
  DetectKept();
  DetectLinks();
}

// One rank computes for so long that all others wait: it hangs. If all wait, the collective does.
void Coordinator::Impl::DetectHang() {
  if ((p_.phase != JobPhase::kRunning && p_.phase != JobPhase::kStopping) || adopting_) return;
  const Time due = last_progress_ + T().hang;
  if (now_ < due) return Want(due);
  std::vector<Fault> faults;
  bool any_waits = false;
  for (const Placement& p : p_.ranks) {
    const WorkerReport* report = ReportOf(p);
    if (!report) continue;
    const Position position = report->state.position;
    const bool waits = position == Position::kInCollective || position == Position::kParked;
    any_waits |= waits;
    if (waits) continue;
    Fault fault{p.node, p.rank, p.worker, "it has held all others up for the time of timeouts.hang"};
    fault.answers = fault.in_place = fault.hung = true;
    faults.push_back(fault);
  }
  last_progress_ = now_;
  stalled_ = !any_waits;
  if (!any_waits) return;  // one slow step of everyone, or a hang of all: not for this to decide
  Open(faults, faults.empty() ? "no rank has made a step for the time of timeouts.hang" : faults.front().reason);
}

// A node without ranks costs nothing while it is away, but it is no spare.
void Coordinator::Impl::DetectIdle() {
  for (auto& [name, node] : nodes_) {
    if (HoldsRank(name) || node.state == NodeState::kFailed || node.state == NodeState::kQuarantined ||
        node.state == NodeState::kLeft) {
      continue;
    }
    const Time due = SilentAt(node) + 2 * T().silence;
    if (now_ < due) {
      if (!node.connected) Want(due);
      continue;
    }
    node.role = Role::kNone;
    SetState(node, NodeState::kFailed, node.connected ? "silent" : "its stream was lost");
  }
}

void Coordinator::Impl::DetectWorkers() {
  std::vector<Fault> faults;
  const auto somebody_answers = [&] {
    return std::any_of(p_.ranks.begin(), p_.ranks.end(), [&](const Placement& p) {
      const WorkerReport* report = ReportOf(p);
      return report && report->life == WorkerLife::kReady && !report->mute;
    });
  };
  for (const Placement& p : p_.ranks) {
    if (p.worker == Incarnation()) continue;
    const Node* node = NodeOf(p);
    if (!node) continue;
    Fault fault{p.node, p.rank, p.worker, ""};
    fault.in_place = true;
    const WorkerReport* report = ReportOf(p);
    const auto slot = node->slots.find(p.slot);
    if (node->leaving) {
      fault.reason = "the node leaves: its agent was told to end";
    } else if (report && report->life == WorkerLife::kExited) {
      fault.reason = "the worker ended: " + (report->exit ? report->exit->what : std::string("gone"));
      const bool well = report->exit && report->exit->status == 0 && report->exit->signal == 0;
      if (well && !report->exit->stopped) fault.reason += " without locum_finish";
      // What it reported last may come together with its end.
      if (!report->state.error.empty()) fault.reason += "; it had reported: " + report->state.error;
    } else if (report && report->stuck) {
      fault.reason = kStuck;
      fault.in_place = false;
    } else if (report && report->mute && p_.phase != JobPhase::kFreezing && somebody_answers()) {
      fault.reason = "it does not answer its node any more, while others wait for it";
      fault.hung = true;
    } else if (proven_dead_.count(p.worker)) {
      fault.reason = "the node was started again";
      fault.in_place = false;
    } else if (node->connected && node->reported && (slot == node->slots.end() || slot->second.worker != p.worker)) {
      fault.reason = "the node no longer runs this worker";
    } else if (report && !report->state.error.empty()) {
      fault.reason = "the worker reports: " + report->state.error;
    } else if (report && report->state.word.state == WordState::kTorn && !Recovering()) {
      // During a recovery a torn state is only one that is fetched anew.
      fault.reason = "an update failed half-way; its state is torn";
    } else if (report && p_.phase == JobPhase::kRecovering && report->state.cannot_pull == p_.generation) {
      fault.reason = "it could not fetch the state: " + report->state.pull_error;
      fault.in_place = false;
    } else {
      continue;
    }
    fault.answers = report && report->life == WorkerLife::kReady && !proven_dead_.count(p.worker);
    faults.push_back(fault);
  }
  if (!faults.empty()) Open(faults, faults.front().reason);
}

void Coordinator::Impl::DetectBroken() {
  if (p_.phase != JobPhase::kRunning && p_.phase != JobPhase::kStopping) return;
  std::string why;
  Rank first = kNoRank;
  for (const Placement& p : p_.ranks) {
    const WorkerReport* report = ReportOf(p);
    if (report && report->state.broken == p_.generation && first == kNoRank) {
      first = p.rank;
      why = report->state.broken_why;
    }
  }
  if (first == kNoRank) {
    broken_ = false;
    return;
  }
  if (!broken_) {
    broken_ = true;
    broken_since_ = now_;
    Note& note = AddNote("collective_broken");
    note.rank = first;
    note.reason = why;
  }
  std::vector<Fault> faults;
  for (const Placement& p : p_.ranks) {
    const Node* node = NodeOf(p);
    if (!node || node->connected || !node->seen) continue;
    const Time due = std::max(broken_since_, node->lost_at) + T().lost_stream_grace;
    if (now_ < due) {
      Want(due);
      continue;
    }
    faults.push_back({p.node, p.rank, p.worker, "its stream was lost and a collective broke"});
  }
  if (!faults.empty()) return Open(faults, faults.front().reason);
  const Time due = broken_since_ + T().culprit_grace;
  if (now_ < due) return Want(due);
  // Connecting anew has not helped either: before it is tried once more, someone may be cut off.
  if (!resumed_ && p_.phase == JobPhase::kRunning && TestLinks()) return;
  Open({}, "a collective broke on rank " + std::to_string(first.value) + " and no culprit appeared: " + why);
}

// From a generation's opening to its first commit everyone waits for everyone, so nobody has a collective that could
// break, and a lost stream is all there is to see. An agent that is started again is back sooner than this grace.
void Coordinator::Impl::DetectLostWhileOpening() {
  if (!Recovering() && resumed_) return;
  std::vector<Fault> faults;
  for (const Placement& p : p_.ranks) {
    const Node* node = NodeOf(p);
    if (!node || p.node.empty() || node->connected || !node->seen) continue;
    const Time due = std::max(node->lost_at, phase_since_) + T().culprit_grace;
    if (now_ < due) {
      Want(due);
      continue;
    }
    faults.push_back({p.node, p.rank, p.worker, "its stream was lost while a generation was opening"});
  }
  if (!faults.empty()) Open(faults, faults.front().reason);
}

// Every rank that can be seen waits for the others, and has done so for a while.
bool Coordinator::Impl::StandsStill(Duration since) const {
  if (Recovering()) return true;
  for (const Placement& p : p_.ranks) {
    const Node* node = NodeOf(p);
    if (!node || now_ >= SilentAt(*node)) continue;
    // Connected anew, it has not told yet what it does now.
    if (node->connected && !node->reported) return false;
    const WorkerReport* report = ReportOf(p);
    if (!report || report->life != WorkerLife::kReady) continue;
    // In a collective is every rank again and again; its report may be as old as the heartbeat, and by then it has long gone
    // on. Only one that stands there is said to wait, and says so at once.
    const bool waits = report->waits || report->state.position == Position::kParked ||
                       report->state.broken == p_.generation || (!resumed_ && report->state.connected != p_.generation);
    if (!waits) return false;
  }
  return now_ - last_progress_ >= since;
}

// Someone waits longer than a collective takes, or everyone for everyone: nodes should report quickly.
bool Coordinator::Impl::SomeoneWaits() const {
  if (adopting_ || Over()) return false;
  if (Recovering() || p_.phase == JobPhase::kStopping || !resumed_ || broken_) return true;
  return p_.phase == JobPhase::kRunning && std::any_of(p_.ranks.begin(), p_.ranks.end(), [&](const Placement& p) {
           const WorkerReport* report = ReportOf(p);
           return report && report->waits;
         });
}

// Nodes that are cut off together fall silent one after another, and come back one after another: for a moment one of
// them looks well beside the others. One that is really there was heard for a while when they no longer were.
bool Coordinator::Impl::HeardBeyond(const Node& node, Time silent_since) const {
  return node.last_heard >= silent_since && now_ >= node.heard_since + T().silence;
}

void Coordinator::Impl::DetectSilence() {
  std::set<std::string> silent, all;
  for (const Placement& p : p_.ranks) {
    Node* node = NodeOf(p);
    if (!node) continue;
    all.insert(p.node);
    if (now_ >= SilentAt(*node)) {
      silent.insert(p.node);
    } else {
      Want(SilentAt(*node));
      // Suspected by an earlier coordinator, too.
      if (std::exchange(node->suspect_noted, false) || node->state == NodeState::kSuspect) {
        SetState(*node, NodeState::kHealthy, "");
      }
    }
  }
  if (silent.empty()) return;
  Time since{};  // when the latest of them gave its last sign, and a while to tell it from those cut off with it
  for (const std::string& name : silent) {
    const Node& node = nodes_[name];
    since = std::max(since, LastSign(node) + Patience(node) / 3);
  }
  const auto beyond = std::count_if(all.begin(), all.end(), [&](const std::string& name) {
    return !silent.count(name) && HeardBeyond(nodes_[name], since);
  });
  for (const std::string& name : silent) {
    Node& node = nodes_[name];
    if (node.suspect_noted) continue;
    node.suspect_noted = true;
    SetState(node, NodeState::kSuspect, "silent");
    AddNote("node_suspect", node).reason =
        "no report for " + std::to_string((now_ - node.last_heard).count() / 1000000) + " ms";
  }
  if (silent.size() * 2 > all.size() && all.size() > 1) {
    std::string unseen;
    for (const std::string& name : silent) {
      if (!nodes_[name].seen) unseen += (unseen.empty() ? "" : ", ") + name;
    }
    if (!unseen.empty()) {
      waiting_for_ = "the nodes " + unseen + " to come back; if they are gone, start agents with these names";
      return;
    }
    waiting_for_ = std::to_string(silent.size()) + " of " + std::to_string(all.size()) +
                   " nodes are silent at once: the coordinator itself may be cut off";
    return;
  }
  if (!StandsStill(T().silence) || (all.size() > 1 && static_cast<size_t>(beyond) * 2 < all.size())) {
    Want(now_ + T().heartbeat);
    return;
  }
  std::vector<Fault> faults;
  for (const Placement& p : p_.ranks) {
    if (!silent.count(p.node)) continue;
    faults.push_back({p.node, p.rank, p.worker, "the node is silent and training stands still"});
  }
  if (all.size() == silent.size()) {
    // Nobody is left who could have left the generation: no witness, so nothing may be replaced.
    waiting_for_ = "a sign of life: every node that holds a rank is silent, and none is proved dead";
    return;
  }
  Open(faults, faults.front().reason);
}

}  // namespace locum
