// What each node should be told, derived from the state alone; sent when it differs from what was sent last.
#include <algorithm>

#include "core/impl.h"

namespace locum {

WorkerOrder Coordinator::Impl::OrderFor(const Node& node, Slot slot, const SlotInfo& info) const {
  WorkerOrder o;
  o.slot = slot;
  o.worker = info.worker;
  o.retire = info.retire;
  o.refuse = info.refuse;
  o.hung = info.retire != Incarnation() && hung_.count(info.retire) != 0;
  const bool lives = info.worker != Incarnation() && info.worker != info.retire && !info.Exited();
  o.run = lives || (WantsFreshWorkers() && node.state != NodeState::kQuarantined);
  o.generation = p_.generation;
  if (!lives) return o;
  o.expendable = others_expendable_ && info.worker != kept_;
  const Placement* p = PlacementOf(node.name, slot, info.worker);
  if (!p) {
    if (LeavingOf(info.worker)) {
      o.mode = Mode::kFreeze;
    } else {
      o.generation = Generation(0);
      if (const auto peer = EchoPeer(node); node.echo_nonce != 0 && slot == Slot(0) && peer) {
        o.echo_nonce = node.echo_nonce;
        o.echo_peer = *peer;
      }
      AddProbe(&o);
    }
    return o;
  }
  o.rank = p->rank;
  o.world = World();
  switch (p_.phase) {
    case JobPhase::kGathering:
    case JobPhase::kFinished:
    case JobPhase::kFailed: break;
    case JobPhase::kFreezing: o.mode = Mode::kFreeze; break;
    case JobPhase::kRecovering:
      o.mode = Mode::kRecover;
      o.recovery_step = p_.recovery_step;
      for (const RankPlan& member : plan_.ranks) {
        if (member.worker != info.worker) continue;
        o.pull = member.pull;
        o.staged = member.staged;
        if (!member.pull) continue;
        // Pullers begin at different sources, so that several do not queue at one.
        for (size_t i = 0; i < plan_.sources.size(); ++i) {
          o.sources.push_back(plan_.sources[(i + member.rank.value) % plan_.sources.size()]);
        }
      }
      break;
    case JobPhase::kRunning:
    case JobPhase::kStopping:
    case JobPhase::kFinishing:
      o.mode = p_.phase == JobPhase::kFinishing ? Mode::kFinish : Mode::kRun;
      o.recovery_step = p_.recovery_step;
      o.stop_at = p_.phase == JobPhase::kStopping ? move_.stop_at : kNoStop;
      for (const Placement& peer : p_.ranks) {
        const JoinInfo* peer_info = InfoOf(peer);
        o.peers.push_back({peer.rank, peer.worker, peer_info ? peer_info->data_address : ""});
      }
      AddProbe(&o);
      break;
  }
  return o;
}

NodeOrder Coordinator::Impl::OrderFor(const Node& node, bool hurry) const {
  NodeOrder order;
  order.term = p_.term;
  const auto leaves = [&](const Placement& p) { return p.node == node.name; };
  order.quick = hurry && (HoldsRank(node.name) || std::any_of(p_.leaving.begin(), p_.leaving.end(), leaves));
  order.shutdown = Over();
  if (order.shutdown) order.reason = p_.reason.empty() ? "the job has finished" : p_.reason;
  for (const auto& [slot, info] : node.slots) order.workers.push_back(OrderFor(node, slot, info));
  return order;
}

Welcome Coordinator::Impl::WelcomeFor(const Node& node) const {
  Welcome w;
  w.term = p_.term;
  w.job = p_.spec.job;
  w.cluster = p_.cluster;
  w.command = p_.spec.command;
  w.workers_per_node = p_.spec.workers_per_node;
  w.seed = p_.spec.seed;
  w.grace = T().grace;
  w.heartbeat = T().heartbeat;
  w.collective_deadline = T().collective;
  w.park_deadline = T().park;
  w.freeze_deadline = T().freeze;
  if (node.hello.cluster != p_.cluster) w.adopts = p_.adopts;
  return w;
}

void Coordinator::Impl::SendOrders() {
  // While the nodes of a running generation come back to a new coordinator, nobody is told anything: what they do
  // is right, and the peers' addresses are not all known yet.
  if (adopting_ && p_.phase != JobPhase::kFinishing) return;
  const bool hurry = SomeoneWaits();
  for (auto& [name, node] : nodes_) {
    if (!node.connected || node.stranger) continue;
    NodeOrder order = OrderFor(node, hurry);
    // What a node runs is not known before its first report, and an order that knows of no worker ends the one there is.
    const bool ends_unknown = std::any_of(order.workers.begin(), order.workers.end(),
                                          [](const WorkerOrder& o) { return o.worker == Incarnation() && !o.run; });
    if (ends_unknown && !node.reported && !order.shutdown) continue;
    const NodeOrder& last = node.last_order;
    if (node.order_sent && order.term == last.term && order.workers == last.workers && order.quick == last.quick &&
        order.shutdown == last.shutdown) {
      continue;
    }
    if (order.quick && !(node.order_sent && last.quick)) node.quick_since = now_;
    order.sequence = ++sequence_;
    node.last_order = order;
    node.order_sent = true;
    node.told_end |= order.shutdown;
    out_.emplace_back(SendOrder{node.stream, std::move(order)});
  }
}

}  // namespace locum
