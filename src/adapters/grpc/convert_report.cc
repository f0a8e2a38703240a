// What goes up: hello, ready, report.
#include "adapters/grpc/convert.h"

namespace locum {
namespace {

// Length of the valid UTF-8 sequence at `at`, 0 when there is none.
size_t Utf8Length(const std::string& s, size_t at) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  unsigned char c = byte(at);
  if (c < 0x80) return 1;
  size_t n = c >= 0xC2 && c <= 0xDF ? 2 : c >= 0xE0 && c <= 0xEF ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
  if (n == 0 || at + n > s.size()) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  unsigned char d = byte(at + 1);
  if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) || (c == 0xF4 && d > 0x8F))
    return 0;
  return n;
}

void Put(const JoinInfo& in, wire::JoinInfo* out) {
  out->set_protocol(in.protocol);
  out->set_library(Clean(in.library));
  out->set_fingerprint(Clean(in.fingerprint));
  for (const Shard& shard : in.shards) {
    wire::Shard* s = out->add_shards();
    s->set_name(Clean(shard.name));
    s->set_bytes(shard.bytes);
    s->set_group(Clean(shard.group));
  }
  out->set_layout_hash(in.layout_hash);
  out->set_total_steps(in.total_steps);
  out->set_data_address(Clean(in.data_address));
}

void Put(const WorkerState& in, wire::WorkerState* out) {
  out->set_word(in.word.Pack());
  out->set_position(static_cast<wire::Position>(in.position));
  out->set_starting(in.starting.value);
  out->set_stop_at(in.stop_at.value);
  if (in.rank != kNoRank) out->set_rank(in.rank.value);
  out->set_frozen(in.frozen.value);
  if (in.holding != Holding{}) {
    out->mutable_holding()->set_valid(in.holding.valid);
    out->mutable_holding()->set_generation(in.holding.generation.value);
    out->mutable_holding()->set_step(in.holding.step.value);
  }
  out->set_parked(in.parked.value);
  if (in.verified != Verified{}) {
    wire::Verified* v = out->mutable_verified();
    v->set_generation(in.verified.generation.value);
    v->set_step(in.verified.step.value);
    v->set_state_hash(in.verified.state_hash);
    v->set_bytes(in.verified.bytes);
    v->set_begin_ns(in.verified.begin_ns);
    v->set_end_ns(in.verified.end_ns);
    v->set_retries(in.verified.retries);
    v->set_source(in.verified.source.value);
  }
  out->set_cannot_pull(in.cannot_pull.value);
  out->set_pull_error(Clean(in.pull_error));
  out->set_connected(in.connected.value);
  out->set_connected_ns(in.connected_ns);
  out->set_first_commit(in.first_commit.value);
  out->set_first_commit_ns(in.first_commit_ns);
  out->set_broken(in.broken.value);
  out->set_broken_step(in.broken_step.value);
  out->set_broken_why(Clean(in.broken_why));
  out->set_done(in.done);
  out->set_loss(in.loss);
  out->set_has_loss(in.has_loss);
  if (in.echo != Echo{}) {
    wire::Echo* e = out->mutable_echo();
    e->set_nonce(in.echo.nonce);
    e->set_ok(in.echo.ok);
    e->set_bytes(in.echo.bytes);
    e->set_duration_ns(in.echo.duration_ns);
    e->set_error(Clean(in.echo.error));
  }
  out->set_error(Clean(in.error));
}

void Take(const wire::JoinInfo& in, JoinInfo* out, WireCheck& check) {
  out->protocol = in.protocol();
  out->library = check.Text(in.library(), "library", kMaxName);
  out->fingerprint = check.Text(in.fingerprint(), "fingerprint");
  if (check.Count(in.shards_size(), kMaxShards, "shards")) {
    for (const wire::Shard& s : in.shards()) {
      out->shards.push_back({check.Text(s.name(), "shard.name"), s.bytes(), check.Text(s.group(), "shard.group")});
    }
  }
  out->layout_hash = in.layout_hash();
  out->total_steps = check.StepOf(in.total_steps(), "total_steps").value;
  out->data_address = check.Text(in.data_address(), "data_address", kMaxName);
}

void Take(const wire::WorkerState& in, WorkerState* out, WireCheck& check) {
  out->word = Word::Unpack(in.word());
  out->position = check.Enum(in.position(), Position::kParked, "position");
  out->starting = check.StepOf(in.starting(), "starting");
  out->stop_at = check.StepOf(in.stop_at(), "stop_at");
  out->rank = check.RankOf(in.has_rank(), in.rank(), "rank");
  out->frozen = check.Gen(in.frozen(), "frozen");
  out->holding.valid = in.holding().valid();
  out->holding.generation = check.Gen(in.holding().generation(), "holding.generation");
  out->holding.step = check.StepOf(in.holding().step(), "holding.step");
  out->parked = check.Gen(in.parked(), "parked");
  out->verified.generation = check.Gen(in.verified().generation(), "verified.generation");
  out->verified.step = check.StepOf(in.verified().step(), "verified.step");
  out->verified.state_hash = in.verified().state_hash();
  out->verified.bytes = in.verified().bytes();
  out->verified.begin_ns = check.NotNegative(in.verified().begin_ns(), "verified.begin_ns");
  out->verified.end_ns = check.NotNegative(in.verified().end_ns(), "verified.end_ns");
  out->verified.retries = in.verified().retries();
  out->verified.source = Incarnation(in.verified().source());
  out->cannot_pull = check.Gen(in.cannot_pull(), "cannot_pull");
  out->pull_error = check.Text(in.pull_error(), "pull_error");
  out->connected = check.Gen(in.connected(), "connected");
  out->connected_ns = check.NotNegative(in.connected_ns(), "connected_ns");
  out->first_commit = check.Gen(in.first_commit(), "first_commit");
  out->first_commit_ns = check.NotNegative(in.first_commit_ns(), "first_commit_ns");
  out->broken = check.Gen(in.broken(), "broken");
  out->broken_step = check.StepOf(in.broken_step(), "broken_step");
  out->broken_why = check.Text(in.broken_why(), "broken_why");
  out->done = in.done();
  out->loss = in.loss();
  out->has_loss = in.has_loss();
  out->echo.nonce = in.echo().nonce();
  out->echo.ok = in.echo().ok();
  out->echo.bytes = in.echo().bytes();
  out->echo.duration_ns = check.NotNegative(in.echo().duration_ns(), "echo.duration_ns");
  out->echo.error = check.Text(in.echo().error(), "echo.error");
  out->error = check.Text(in.error(), "error");
}

}  // namespace

std::string Clean(const std::string& text, size_t limit) {
  std::string cut = text.size() > limit ? text.substr(text.size() - limit) : text;
  for (size_t i = 0; i < cut.size();) {
    size_t n = cut[i] == '\0' ? 0 : Utf8Length(cut, i);
    if (n == 0) cut[i] = '?';
    i += n == 0 ? 1 : n;
  }
  return cut;
}

void Put(const Usage& in, wire::Usage* out) {
  out->set_when_ns(in.when_ns);
  out->set_cpu_permille(in.cpu_permille);
  out->set_memory_used(in.memory_used);
  out->set_memory_total(in.memory_total);
  out->set_disk_used(in.disk_used);
  out->set_disk_total(in.disk_total);
  out->set_disk_read_per_s(in.disk_read_per_s);
  out->set_disk_written_per_s(in.disk_written_per_s);
  out->set_net_received_per_s(in.net_received_per_s);
  out->set_net_sent_per_s(in.net_sent_per_s);
}

void Take(const wire::Usage& in, Usage* out, WireCheck& check) {
  out->when_ns = check.NotNegative(in.when_ns(), "usage.when_ns");
  out->cpu_permille = check.AtMost(in.cpu_permille(), 1000, "usage.cpu_permille");
  out->memory_used = in.memory_used();
  out->memory_total = in.memory_total();
  out->disk_used = in.disk_used();
  out->disk_total = in.disk_total();
  out->disk_read_per_s = in.disk_read_per_s();
  out->disk_written_per_s = in.disk_written_per_s();
  out->net_received_per_s = in.net_received_per_s();
  out->net_sent_per_s = in.net_sent_per_s();
}

void Put(const WorkerReport& in, wire::WorkerReport* out) {
  out->set_slot(in.slot.value);
  out->set_worker(in.worker.value);
  out->set_pid(in.pid);
  out->set_life(static_cast<wire::WorkerLife>(in.life));
  if (in.exit) {
    out->mutable_exit()->set_status(in.exit->status);
    out->mutable_exit()->set_signal(in.exit->signal);
    out->mutable_exit()->set_stopped(in.exit->stopped);
    out->mutable_exit()->set_what(Clean(in.exit->what));
    out->mutable_exit()->set_log_tail(Clean(in.exit->log_tail));
  }
  Put(in.state, out->mutable_state());
  out->set_log(in.log);
  out->set_log_offset(in.log_offset);
  out->set_step_log(in.step_log);
  out->set_stuck(in.stuck);
  out->set_waits(in.waits);
  out->set_mute(in.mute);
  out->set_joined(in.joined);
}

void Take(const wire::WorkerReport& in, WorkerReport* out, WireCheck& check) {
  out->slot = check.SlotOf(in.slot(), "worker.slot");
  out->worker = Incarnation(in.worker());
  out->pid = check.Pid(in.pid(), "worker.pid");
  out->life = check.Enum(in.life(), WorkerLife::kExited, "worker.life");
  if (in.has_exit()) {
    out->exit = check.ExitOf(in.exit().status(), in.exit().signal());
    out->exit->stopped = in.exit().stopped();
    out->exit->what = check.Text(in.exit().what(), "exit.what");
    out->exit->log_tail = check.Text(in.exit().log_tail(), "exit.log_tail");
  }
  Take(in.state(), &out->state, check);
  out->log = check.Text(in.log(), "worker.log");
  out->log_offset = in.log_offset();
  out->step_log = check.Text(in.step_log(), "worker.step_log");
  out->stuck = in.stuck();
  out->waits = in.waits();
  out->mute = in.mute();
  out->joined = in.joined();
}

wire::NodeHello ToWire(const NodeHello& in) {
  wire::NodeHello out;
  out.set_name(in.name);
  out.set_protocol(in.protocol);
  out.set_version(in.version);
  out.set_job(in.job);
  out.set_address(in.address);
  out.set_keeper(in.keeper.value);
  out.set_agent(in.agent.value);
  out.set_keeper_pid(in.keeper_pid);
  out.set_agent_pid(in.agent_pid);
  out.set_term(in.term.value);
  out.set_slots(in.slots);
  out.set_dir(in.dir);
  out.set_cluster(in.cluster.value);
  return out;
}

Result<NodeHello> FromWire(const wire::NodeHello& in) {
  WireCheck check;
  NodeHello out;
  out.name = check.NodeName(in.name(), "hello.name");
  out.protocol = in.protocol();
  out.version = check.Text(in.version(), "hello.version", kMaxName);
  out.job = check.Text(in.job(), "hello.job", kMaxName);
  out.address = check.Text(in.address(), "hello.address", kMaxName);
  out.keeper = Incarnation(in.keeper());
  out.agent = Incarnation(in.agent());
  if (in.keeper() == 0) check.Fail("hello.keeper", "is missing");
  if (in.agent() == 0) check.Fail("hello.agent", "is missing");
  out.keeper_pid = check.Pid(in.keeper_pid(), "hello.keeper_pid");
  out.agent_pid = check.Pid(in.agent_pid(), "hello.agent_pid");
  out.term = check.TermOf(in.term(), "hello.term");
  out.slots = check.AtMost(in.slots(), kMaxWorkersPerNode, "hello.slots");
  out.dir = check.Text(in.dir(), "hello.dir");
  out.cluster = Incarnation(in.cluster());
  if (!check.ok()) return check.status();
  return out;
}

wire::NodeReport ToWire(const NodeReport& in) {
  wire::NodeReport out;
  out.set_term(in.term.value);
  out.set_order(in.order);
  for (const WorkerReport& worker : in.workers) Put(worker, out.add_workers());
  Put(in.usage, out.mutable_usage());
  out.set_leaving(in.leaving);
  return out;
}

Result<NodeReport> FromWire(const wire::NodeReport& in) {
  WireCheck check;
  NodeReport out;
  out.term = check.TermOf(in.term(), "report.term");
  out.order = in.order();
  if (check.Count(in.workers_size(), kMaxWorkersPerNode, "report.workers")) {
    out.workers.resize(static_cast<size_t>(in.workers_size()));
    for (int i = 0; i < in.workers_size(); ++i) Take(in.workers(i), &out.workers[static_cast<size_t>(i)], check);
  }
  Take(in.usage(), &out.usage, check);
  out.leaving = in.leaving();
  if (!check.ok()) return check.status();
  return out;
}

wire::Ready ToWire(Slot slot, Incarnation worker, const JoinInfo& in) {
  wire::Ready out;
  out.set_slot(slot.value);
  out.set_worker(worker.value);
  Put(in, out.mutable_info());
  return out;
}

Result<ReadyWorker> FromWire(const wire::Ready& in) {
  WireCheck check;
  ReadyWorker out;
  out.slot = check.SlotOf(in.slot(), "ready.slot");
  out.worker = Incarnation(in.worker());
  if (in.worker() == 0) check.Fail("ready.worker", "is missing");
  Take(in.info(), &out.info, check);
  if (!check.ok()) return check.status();
  return out;
}

}  // namespace locum
