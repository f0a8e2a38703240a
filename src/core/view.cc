// What can be seen from outside, and the names that people and files see.
#include <algorithm>

#include "core/impl.h"

namespace locum {

const char* NodeStateName(NodeState state) {
  switch (state) {
    case NodeState::kJoining: return "joining";
    case NodeState::kHealthy: return "healthy";
    case NodeState::kSuspect: return "suspect";
    case NodeState::kFailed: return "failed";
    case NodeState::kRepairing: return "repairing";
    case NodeState::kVerifying: return "verifying";
    case NodeState::kProbation: return "probation";
    case NodeState::kQuarantined: return "quarantined";
    case NodeState::kLeft: return "left";
  }
  return "invalid";
}

const char* RoleName(Role role) {
  switch (role) {
    case Role::kNone: return "none";
    case Role::kActive: return "active";
    case Role::kSpare: return "spare";
  }
  return "invalid";
}

const char* JobPhaseName(JobPhase phase) {
  switch (phase) {
    case JobPhase::kGathering: return "gathering";
    case JobPhase::kRunning: return "running";
    case JobPhase::kStopping: return "stopping";
    case JobPhase::kFreezing: return "freezing";
    case JobPhase::kRecovering: return "recovering";
    case JobPhase::kFinishing: return "finishing";
    case JobPhase::kFinished: return "finished";
    case JobPhase::kFailed: return "failed";
  }
  return "invalid";
}

ClusterView Coordinator::Impl::View() const {
  ClusterView view;
  view.job = p_.spec.job;
  view.phase = p_.phase;
  view.waiting_for = waiting_for_;
  view.step = committed_;
  view.generation = p_.generation;
  view.term = p_.term;
  view.exit_status = p_.exit_status;
  view.reason = p_.reason;
  const bool over = Over();
  for (const auto& [name, node] : nodes_) {
    NodeView n;
    n.name = name;
    n.state = node.state;
    n.role = node.role;
    n.connected = node.connected;
    n.address = node.hello.address;
    n.keeper_pid = node.hello.keeper_pid;
    n.agent_pid = node.hello.agent_pid;
    n.usage = node.usage;
    n.reason = node.reason;
    for (const auto& [slot, info] : node.slots) {
      if (info.report) n.workers.push_back(*info.report);
    }
    // At the end the nodes leave; what is told then is who stood ready.
    view.spares += node.role == Role::kSpare && (over || UsableSpare(node));
    view.nodes.push_back(std::move(n));
  }
  std::sort(view.nodes.begin(), view.nodes.end(),
            [](const NodeView& a, const NodeView& b) { return NaturalLess(a.name, b.name); });
  for (const Placement& p : p_.ranks) {
    RankView r;
    r.rank = p.rank;
    r.node = p.node;
    r.slot = p.slot;
    r.worker = p.worker;
    if (const WorkerReport* report = ReportOf(p)) {
      r.worker_pid = report->pid;
      r.step = report->state.word.step;
      r.log = report->log;
      r.log_offset = report->log_offset;
      r.step_log = report->step_log;
      if (p.rank == Rank(0) && report->state.has_loss) {
        view.has_loss = true;
        view.loss = report->state.loss;
      }
    }
    view.ranks.push_back(std::move(r));
  }
  for (const auto& [key, alarm] : alarms_) {
    view.alarms.push_back({key.first, key.second, alarm.text, now_ - alarm.since});
  }
  return view;
}

}  // namespace locum
