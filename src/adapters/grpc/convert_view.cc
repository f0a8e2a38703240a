// What people see.
#include "adapters/grpc/convert.h"

namespace locum {

wire::ClusterView ToWire(const ClusterView& in) {
  wire::ClusterView out;
  out.set_job(in.job);
  out.set_phase(static_cast<wire::JobPhase>(in.phase));
  out.set_waiting_for(Clean(in.waiting_for));
  out.set_step(in.step.value);
  out.set_generation(in.generation.value);
  out.set_term(in.term.value);
  out.set_spares(in.spares);
  out.set_has_loss(in.has_loss);
  out.set_loss(in.loss);
  out.set_exit_status(in.exit_status);
  out.set_reason(Clean(in.reason));
  for (const NodeView& node : in.nodes) {
    wire::NodeView* n = out.add_nodes();
    n->set_name(node.name);
    n->set_state(static_cast<wire::NodeState>(node.state));
    n->set_role(static_cast<wire::Role>(node.role));
    n->set_connected(node.connected);
    n->set_address(Clean(node.address));
    n->set_keeper_pid(node.keeper_pid);
    n->set_agent_pid(node.agent_pid);
    Put(node.usage, n->mutable_usage());
    n->set_reason(Clean(node.reason));
    for (const WorkerReport& worker : node.workers) Put(worker, n->add_workers());
  }
  for (const RankView& rank : in.ranks) {
    wire::RankView* r = out.add_ranks();
    if (rank.rank != kNoRank) r->set_rank(rank.rank.value);
    r->set_node(rank.node);
    r->set_slot(rank.slot.value);
    r->set_worker(rank.worker.value);
    r->set_worker_pid(rank.worker_pid);
    r->set_step(rank.step.value);
    r->set_log(rank.log);
    r->set_step_log(rank.step_log);
    r->set_log_offset(rank.log_offset);
  }
  for (const AlarmView& alarm : in.alarms) {
    wire::Alarm* a = out.add_alarms();
    a->set_name(alarm.name);
    a->set_node(alarm.node);
    a->set_text(Clean(alarm.text));
    a->set_age_ns(alarm.age.count());
  }
  return out;
}

Result<ClusterView> FromWire(const wire::ClusterView& in) {
  WireCheck check;
  ClusterView out;
  out.job = check.Text(in.job(), "view.job", kMaxName);
  out.phase = check.Enum(in.phase(), JobPhase::kFailed, "view.phase");
  out.waiting_for = check.Text(in.waiting_for(), "view.waiting_for");
  out.step = check.StepOf(in.step(), "view.step");
  out.generation = check.Gen(in.generation(), "view.generation");
  out.term = check.TermOf(in.term(), "view.term");
  out.spares = in.spares();
  out.has_loss = in.has_loss();
  out.loss = in.loss();
  out.exit_status = in.exit_status();
  out.reason = check.Text(in.reason(), "view.reason");
  if (check.Count(in.nodes_size(), kMaxNodes, "view.nodes")) {
    for (const wire::NodeView& n : in.nodes()) {
      NodeView& node = out.nodes.emplace_back();
      node.name = check.NodeName(n.name(), "node.name");
      node.state = check.Enum(n.state(), NodeState::kLeft, "node.state");
      node.role = check.Enum(n.role(), Role::kSpare, "node.role");
      node.connected = n.connected();
      node.address = check.Text(n.address(), "node.address", kMaxName);
      node.keeper_pid = check.Pid(n.keeper_pid(), "node.keeper_pid");
      node.agent_pid = check.Pid(n.agent_pid(), "node.agent_pid");
      Take(n.usage(), &node.usage, check);
      node.reason = check.Text(n.reason(), "node.reason");
      if (!check.Count(n.workers_size(), kMaxWorkersPerNode, "node.workers")) break;
      for (const wire::WorkerReport& worker : n.workers()) Take(worker, &node.workers.emplace_back(), check);
    }
  }
  if (check.Count(in.ranks_size(), kMaxPeers, "view.ranks")) {
    for (const wire::RankView& r : in.ranks()) {
      RankView& rank = out.ranks.emplace_back();
      rank.rank = check.RankOf(r.has_rank(), r.rank(), "rank.rank");
      rank.node = check.NodeName(r.node(), "rank.node", true);
      rank.slot = check.SlotOf(r.slot(), "rank.slot");
      rank.worker = Incarnation(r.worker());
      rank.worker_pid = check.Pid(r.worker_pid(), "rank.worker_pid");
      rank.step = check.StepOf(r.step(), "rank.step");
      rank.log = check.Text(r.log(), "rank.log");
      rank.step_log = check.Text(r.step_log(), "rank.step_log");
      rank.log_offset = r.log_offset();
    }
  }
  if (check.Count(in.alarms_size(), kMaxAlarms, "view.alarms")) {
    for (const wire::Alarm& a : in.alarms()) {
      out.alarms.push_back({check.Text(a.name(), "alarm.name", kMaxName), check.NodeName(a.node(), "alarm.node", true),
                            check.Text(a.text(), "alarm.text"), check.DurationOf(a.age_ns(), "alarm.age")});
    }
  }
  if (!check.ok()) return check.status();
  return out;
}

}  // namespace locum
