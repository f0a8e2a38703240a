// The log of the core's inputs and answers.
#include "adapters/grpc/convert.h"

namespace locum {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

void Put(const Timeouts& in, wire::Timeouts* out) {
  out->set_heartbeat_ns(in.heartbeat.count());
  out->set_silence_ns(in.silence.count());
  out->set_lost_stream_grace_ns(in.lost_stream_grace.count());
  out->set_culprit_grace_ns(in.culprit_grace.count());
  out->set_freeze_ns(in.freeze.count());
  out->set_collective_ns(in.collective.count());
  out->set_park_ns(in.park.count());
  out->set_join_ns(in.join.count());
  out->set_gather_ns(in.gather.count());
  out->set_hang_ns(in.hang.count());
  out->set_grace_ns(in.grace.count());
  out->set_finish_ns(in.finish.count());
  out->set_adopt_ns(in.adopt.count());
}

Timeouts Take(const wire::Timeouts& in, WireCheck& check) {
  Timeouts out;
  out.heartbeat = check.TimeoutOf(in.heartbeat_ns(), "timeouts.heartbeat");
  out.silence = check.TimeoutOf(in.silence_ns(), "timeouts.silence");
  out.lost_stream_grace = check.TimeoutOf(in.lost_stream_grace_ns(), "timeouts.lost_stream_grace");
  out.culprit_grace = check.TimeoutOf(in.culprit_grace_ns(), "timeouts.culprit_grace");
  out.freeze = check.TimeoutOf(in.freeze_ns(), "timeouts.freeze");
  out.collective = check.TimeoutOf(in.collective_ns(), "timeouts.collective");
  out.park = check.TimeoutOf(in.park_ns(), "timeouts.park");
  out.join = check.TimeoutOf(in.join_ns(), "timeouts.join");
  out.gather = check.TimeoutOf(in.gather_ns(), "timeouts.gather");
  out.hang = check.TimeoutOf(in.hang_ns(), "timeouts.hang");
  out.grace = check.TimeoutOf(in.grace_ns(), "timeouts.grace");
  out.finish = check.TimeoutOf(in.finish_ns(), "timeouts.finish");
  out.adopt = check.TimeoutOf(in.adopt_ns(), "timeouts.adopt");
  return out;
}

void Put(const Limits& in, wire::Limits* out) {
  out->set_restarts(in.restarts);
  out->set_recoveries(in.recoveries);
  out->set_window_ns(in.window.count());
}

Limits Take(const wire::Limits& in, WireCheck& check) {
  return {in.restarts(), in.recoveries(), check.TimeoutOf(in.window_ns(), "limits.window")};
}

void Put(const JobSpec& in, wire::JobSpec* out) {
  out->set_job(in.job);
  for (const std::string& word : in.command) out->add_command(word);
  out->set_nodes(in.nodes);
  out->set_spares(in.spares);
  out->set_workers_per_node(in.workers_per_node);
  out->set_seed(in.seed);
  Put(in.timeouts, out->mutable_timeouts());
  Put(in.limits, out->mutable_limits());
  out->set_worker_to_spare(in.worker_to_spare);
}

JobSpec Take(const wire::JobSpec& in, WireCheck& check) {
  JobSpec out;
  out.job = check.Text(in.job(), "spec.job", kMaxName);
  if (check.Count(in.command_size(), kMaxCommandWords, "spec.command")) {
    for (const std::string& word : in.command()) out.command.push_back(check.Text(word, "spec.command", 1u << 20));
  }
  out.nodes = check.AtMost(in.nodes(), kMaxNodes, "spec.nodes");
  out.spares = check.AtMost(in.spares(), kMaxNodes, "spec.spares");
  out.workers_per_node = check.AtMost(in.workers_per_node(), kMaxWorkersPerNode, "spec.workers_per_node");
  out.seed = in.seed();
  out.timeouts = Take(in.timeouts(), check);
  out.limits = Take(in.limits(), check);
  out.worker_to_spare = in.worker_to_spare();
  return out;
}

Placement Take(const wire::Placement& p, WireCheck& check) {
  return {check.RankOf(p.has_rank(), p.rank(), "placement.rank"), check.NodeName(p.node(), "placement.node", true),
          check.NodeName(p.home(), "placement.home", true), check.SlotOf(p.slot(), "placement.slot"),
          Incarnation(p.worker())};
}

void Put(const Placement& in, wire::Placement* out) {
  if (in.rank != kNoRank) out->set_rank(in.rank.value);
  out->set_node(in.node);
  out->set_home(in.home);
  out->set_slot(in.slot.value);
  out->set_worker(in.worker.value);
}

PersistentState Take(const wire::PersistentState& in, WireCheck& check) {
  PersistentState out;
  out.spec = Take(in.spec(), check);
  out.term = check.TermOf(in.term(), "state.term");
  out.cluster = Incarnation(in.cluster());
  out.adopts = Incarnation(in.adopts());
  out.phase = check.Enum(in.phase(), JobPhase::kFailed, "state.phase");
  out.generation = check.Gen(in.generation(), "state.generation");
  out.recovery_step = check.StepOf(in.recovery_step(), "state.recovery_step");
  out.recovery_fixed = in.recovery_fixed();
  if (check.Count(in.ranks_size(), kMaxPeers, "state.ranks")) {
    for (const wire::Placement& p : in.ranks()) out.ranks.push_back(Take(p, check));
  }
  if (check.Count(in.leaving_size(), kMaxPeers, "state.leaving")) {
    for (const wire::Placement& p : in.leaving()) out.leaving.push_back(Take(p, check));
  }
  if (check.Count(in.history_size(), static_cast<int>(kMaxGeneration), "state.history")) {
    for (const wire::Recovered& r : in.history()) {
      out.history.push_back({check.Gen(r.generation(), "history.generation"), check.StepOf(r.step(), "history.step")});
    }
  }
  if (check.Count(in.nodes_size(), kMaxNodes, "state.nodes")) {
    for (const wire::PersistentNode& n : in.nodes()) {
      out.nodes.push_back({check.NodeName(n.name(), "node.name"), check.Enum(n.state(), NodeState::kLeft, "node.state"),
                           check.Enum(n.role(), Role::kSpare, "node.role"), Incarnation(n.keeper()),
                           check.Text(n.reason(), "node.reason")});
    }
  }
  out.exit_status = in.exit_status();
  out.reason = check.Text(in.reason(), "state.reason");
  return out;
}

void PutNote(const Note& in, wire::CoreAction::Note* out) {
  out->set_name(in.name);
  out->set_node(in.node);
  if (in.rank != kNoRank) out->set_rank(in.rank.value);
  out->set_keeper(in.keeper.value);
  out->set_agent(in.agent.value);
  out->set_worker(in.worker.value);
  out->set_generation(in.generation.value);
  out->set_step(in.step.value);
  out->set_reason(Clean(in.reason));
  for (const auto& [key, value] : in.figures) {
    out->add_figures()->set_key(key);
    out->mutable_figures(out->figures_size() - 1)->set_value(value);
  }
  for (const auto& [key, value] : in.details) {
    out->add_details()->set_key(key);
    out->mutable_details(out->details_size() - 1)->set_value(Clean(value));
  }
}

}  // namespace

wire::PersistentState ToWire(const PersistentState& in) {
  wire::PersistentState out;
  Put(in.spec, out.mutable_spec());
  out.set_term(in.term.value);
  out.set_cluster(in.cluster.value);
  out.set_adopts(in.adopts.value);
  out.set_phase(static_cast<wire::JobPhase>(in.phase));
  out.set_generation(in.generation.value);
  out.set_recovery_step(in.recovery_step.value);
  out.set_recovery_fixed(in.recovery_fixed);
  for (const Placement& placement : in.ranks) Put(placement, out.add_ranks());
  for (const Placement& placement : in.leaving) Put(placement, out.add_leaving());
  for (const Recovered& recovered : in.history) {
    wire::Recovered* r = out.add_history();
    r->set_generation(recovered.generation.value);
    r->set_step(recovered.step.value);
  }
  for (const PersistentNode& node : in.nodes) {
    wire::PersistentNode* n = out.add_nodes();
    n->set_name(node.name);
    n->set_state(static_cast<wire::NodeState>(node.state));
    n->set_role(static_cast<wire::Role>(node.role));
    n->set_keeper(node.keeper.value);
    n->set_reason(Clean(node.reason));
  }
  out.set_exit_status(in.exit_status);
  out.set_reason(Clean(in.reason));
  return out;
}

Result<PersistentState> FromWire(const wire::PersistentState& in) {
  WireCheck check;
  PersistentState out = Take(in, check);
  if (!check.ok()) return check.status();
  return out;
}

wire::CoreStart ToWire(const JobSpec& spec, Term term, Incarnation cluster, const PersistentState* stored) {
  wire::CoreStart out;
  Put(spec, out.mutable_spec());
  out.set_term(term.value);
  out.set_cluster(cluster.value);
  if (stored != nullptr) *out.mutable_stored() = ToWire(*stored);
  return out;
}

Result<CoreBeginning> FromWire(const wire::CoreStart& in) {
  WireCheck check;
  CoreBeginning out;
  out.spec = Take(in.spec(), check);
  out.term = check.TermOf(in.term(), "start.term");
  out.cluster = Incarnation(in.cluster());
  if (in.has_stored()) out.stored = Take(in.stored(), check);
  if (!check.ok()) return check.status();
  if (Status spec = CheckSpec(out.spec); !spec.ok()) return spec.Annotate("start.spec");
  if (!out.stored) return out;
  if (Status stored = CheckStored(*out.stored); !stored.ok()) return stored.Annotate("start.stored");
  if (out.term <= out.stored->term) return Invalid("start.term: is not higher than the stored one");
  return out;
}

wire::CoreEvent ToWire(const Event& in) {
  wire::CoreEvent out;
  std::visit(Overload{
                 [&](const NodeConnected& e) {
                   out.mutable_connected()->set_stream(e.stream);
                   *out.mutable_connected()->mutable_hello() = ToWire(e.hello);
                 },
                 [&](const NodeLost& e) {
                   out.mutable_lost()->set_stream(e.stream);
                   out.mutable_lost()->set_reason(Clean(e.reason));
                 },
                 [&](const WorkerReady& e) {
                   out.mutable_ready()->set_stream(e.stream);
                   *out.mutable_ready()->mutable_ready() = ToWire(e.slot, e.worker, e.info);
                 },
                 [&](const NodeReported& e) {
                   out.mutable_reported()->set_stream(e.stream);
                   *out.mutable_reported()->mutable_report() = ToWire(e.report);
                 },
                 [&](const FailbackRequested& e) {
                   out.mutable_failback()->set_request(e.request);
                   out.mutable_failback()->set_node(e.node);
                 },
                 [&](const AdoptRequested& e) { out.mutable_adopt()->set_request(e.request); },
                 [&](const StoreChanged& e) {
                   out.mutable_store()->set_error(Clean(e.error));
                   out.mutable_store()->set_waits(e.waits);
                 },
                 [&](const StopRequested& e) { out.mutable_stop()->set_reason(Clean(e.reason)); },
                 [&](const Tick&) { out.mutable_tick(); },
                 [&](const Paused& e) { out.mutable_paused()->set_gap_ns(e.gap.count()); },
             },
             in);
  return out;
}

Result<Event> FromWire(const wire::CoreEvent& in) {
  switch (in.event_case()) {
    case wire::CoreEvent::kConnected: {
      auto hello = FromWire(in.connected().hello());
      if (!hello.ok()) return hello.status();
      return Event(NodeConnected{in.connected().stream(), *hello});
    }
    case wire::CoreEvent::kLost: return Event(NodeLost{in.lost().stream(), in.lost().reason()});
    case wire::CoreEvent::kReady: {
      auto ready = FromWire(in.ready().ready());
      if (!ready.ok()) return ready.status();
      return Event(WorkerReady{in.ready().stream(), ready->slot, ready->worker, ready->info});
    }
    case wire::CoreEvent::kReported: {
      auto report = FromWire(in.reported().report());
      if (!report.ok()) return report.status();
      return Event(NodeReported{in.reported().stream(), *report});
    }
    case wire::CoreEvent::kFailback: return Event(FailbackRequested{in.failback().request(), in.failback().node()});
    case wire::CoreEvent::kAdopt: return Event(AdoptRequested{in.adopt().request()});
    case wire::CoreEvent::kStore: return Event(StoreChanged{in.store().error(), in.store().waits()});
    case wire::CoreEvent::kStop: return Event(StopRequested{in.stop().reason()});
    case wire::CoreEvent::kTick: return Event(Tick{});
    case wire::CoreEvent::kPaused: return Event(Paused{Duration(in.paused().gap_ns())});
    case wire::CoreEvent::EVENT_NOT_SET: break;
  }
  return Invalid("event: unknown kind");
}

wire::CoreAction ToWire(const Action& in) {
  wire::CoreAction out;
  std::visit(Overload{
                 [&](const Persist& a) { *out.mutable_persist() = ToWire(*a.state); },
                 [&](const SendWelcome& a) {
                   out.mutable_welcome()->set_stream(a.stream);
                   *out.mutable_welcome()->mutable_welcome() = ToWire(a.welcome);
                 },
                 [&](const RefuseNode& a) {
                   out.mutable_refuse()->set_stream(a.stream);
                   out.mutable_refuse()->set_reason(Clean(a.reason));
                   out.mutable_refuse()->set_end(a.end);
                 },
                 [&](const SendOrder& a) {
                   out.mutable_order()->set_stream(a.stream);
                   *out.mutable_order()->mutable_order() = ToWire(a.order);
                 },
                 [&](const Note& a) { PutNote(a, out.mutable_note()); },
                 [&](const WakeAt& a) { out.set_wake_at_ns(a.when.ns); },
                 [&](const Answer& a) {
                   out.mutable_answer()->set_request(a.request);
                   out.mutable_answer()->set_code(static_cast<int>(a.status.code()));
                   out.mutable_answer()->set_message(Clean(a.status.message()));
                 },
                 [&](const EndJob& a) {
                   out.mutable_end()->set_exit_status(a.exit_status);
                   out.mutable_end()->set_reason(Clean(a.reason));
                 },
             },
             in);
  return out;
}

}  // namespace locum
