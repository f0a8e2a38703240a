// What goes down: welcome and orders.
#include "adapters/grpc/convert.h"

namespace locum {
namespace {

void Put(const Peer& in, wire::Peer* out) {
  if (in.rank != kNoRank) out->set_rank(in.rank.value);
  out->set_worker(in.worker.value);
  out->set_address(Clean(in.address));
}

Peer Take(const wire::Peer& in, WireCheck& check) {
  return {check.RankOf(in.has_rank(), in.rank(), "peer.rank"), Incarnation(in.worker()),
          check.Text(in.address(), "peer.address", kMaxName)};
}

void Put(const WorkerOrder& in, wire::WorkerOrder* out) {
  out->set_slot(in.slot.value);
  out->set_worker(in.worker.value);
  out->set_retire(in.retire.value);
  out->set_run(in.run);
  out->set_refuse(Clean(in.refuse));
  out->set_mode(static_cast<wire::Mode>(in.mode));
  out->set_generation(in.generation.value);
  if (in.rank != kNoRank) out->set_rank(in.rank.value);
  out->set_world(in.world);
  out->set_recovery_step(in.recovery_step.value);
  out->set_pull(in.pull);
  out->set_staged(in.staged);
  for (const Peer& peer : in.sources) Put(peer, out->add_sources());
  for (const Peer& peer : in.peers) Put(peer, out->add_peers());
  out->set_stop_at(in.stop_at.value);
  out->set_echo_nonce(in.echo_nonce);
  out->set_hung(in.hung);
  out->set_expendable(in.expendable);
  if (in.echo_peer != Peer{}) Put(in.echo_peer, out->mutable_echo_peer());
}

void Take(const wire::WorkerOrder& in, WorkerOrder* out, WireCheck& check) {
  out->slot = check.SlotOf(in.slot(), "order.slot");
  out->worker = Incarnation(in.worker());
  out->retire = Incarnation(in.retire());
  out->run = in.run();
  out->refuse = check.Text(in.refuse(), "order.refuse");
  out->mode = check.Enum(in.mode(), Mode::kFinish, "order.mode");
  out->generation = check.Gen(in.generation(), "order.generation");
  out->rank = check.RankOf(in.has_rank(), in.rank(), "order.rank");
  out->world = check.AtMost(in.world(), kMaxPeers, "order.world");
  out->recovery_step = check.StepOf(in.recovery_step(), "order.recovery_step");
  out->pull = in.pull();
  out->staged = in.staged();
  if (check.Count(in.sources_size(), kMaxPeers, "order.sources")) {
    for (const wire::Peer& peer : in.sources()) out->sources.push_back(Take(peer, check));
  }
  if (check.Count(in.peers_size(), kMaxPeers, "order.peers")) {
    for (const wire::Peer& peer : in.peers()) out->peers.push_back(Take(peer, check));
  }
  out->stop_at = check.StepOf(in.stop_at(), "order.stop_at");
  out->echo_nonce = in.echo_nonce();
  out->hung = in.hung();
  out->expendable = in.expendable();
  if (in.has_echo_peer()) out->echo_peer = Take(in.echo_peer(), check);
}

}  // namespace

wire::Welcome ToWire(const Welcome& in) {
  wire::Welcome out;
  out.set_term(in.term.value);
  out.set_job(in.job);
  out.set_cluster(in.cluster.value);
  for (const std::string& word : in.command) out.add_command(word);
  out.set_workers_per_node(in.workers_per_node);
  out.set_seed(in.seed);
  out.set_grace_ns(in.grace.count());
  out.set_heartbeat_ns(in.heartbeat.count());
  out.set_collective_deadline_ns(in.collective_deadline.count());
  out.set_park_deadline_ns(in.park_deadline.count());
  out.set_freeze_deadline_ns(in.freeze_deadline.count());
  out.set_adopts(in.adopts.value);
  return out;
}

Result<Welcome> FromWire(const wire::Welcome& in) {
  WireCheck check;
  Welcome out;
  out.term = check.TermOf(in.term(), "welcome.term");
  out.job = check.Text(in.job(), "welcome.job", kMaxName);
  out.cluster = Incarnation(in.cluster());
  if (check.Count(in.command_size(), kMaxCommandWords, "welcome.command")) {
    for (const std::string& word : in.command()) out.command.push_back(check.Text(word, "welcome.command", 1u << 20));
  }
  out.workers_per_node = check.AtMost(in.workers_per_node(), kMaxWorkersPerNode, "welcome.workers_per_node");
  if (in.command_size() == 0 || in.command(0).empty()) check.Fail("welcome.command", "is missing");
  if (out.workers_per_node == 0) check.Fail("welcome.workers_per_node", "is missing");
  out.seed = in.seed();
  out.grace = check.TimeoutOf(in.grace_ns(), "welcome.grace");
  out.heartbeat = check.TimeoutOf(in.heartbeat_ns(), "welcome.heartbeat");
  out.collective_deadline = check.TimeoutOf(in.collective_deadline_ns(), "welcome.collective_deadline");
  out.park_deadline = check.TimeoutOf(in.park_deadline_ns(), "welcome.park_deadline");
  out.freeze_deadline = check.TimeoutOf(in.freeze_deadline_ns(), "welcome.freeze_deadline");
  out.adopts = Incarnation(in.adopts());
  if (!check.ok()) return check.status();
  return out;
}

wire::NodeOrder ToWire(const NodeOrder& in) {
  wire::NodeOrder out;
  out.set_term(in.term.value);
  out.set_sequence(in.sequence);
  for (const WorkerOrder& worker : in.workers) Put(worker, out.add_workers());
  out.set_quick(in.quick);
  out.set_shutdown(in.shutdown);
  out.set_reason(Clean(in.reason));
  return out;
}

Result<NodeOrder> FromWire(const wire::NodeOrder& in) {
  WireCheck check;
  NodeOrder out;
  out.term = check.TermOf(in.term(), "order.term");
  out.sequence = in.sequence();
  if (check.Count(in.workers_size(), kMaxWorkersPerNode, "order.workers")) {
    out.workers.resize(static_cast<size_t>(in.workers_size()));
    for (int i = 0; i < in.workers_size(); ++i) Take(in.workers(i), &out.workers[static_cast<size_t>(i)], check);
  }
  out.quick = in.quick();
  out.shutdown = in.shutdown();
  out.reason = check.Text(in.reason(), "order.reason");
  if (!check.ok()) return check.status();
  return out;
}

}  // namespace locum
