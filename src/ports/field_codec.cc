#include "ports/field_codec.h"

#include <bit>

namespace locum {

Generation FieldReader::GetGeneration() {
  const uint64_t v = U64();
  Require(v <= kMaxGeneration);
  return Generation(v);
}

Step FieldReader::GetStep() {
  const uint64_t v = U64();
  Require(v <= kMaxStep);
  return Step(v);
}

Rank FieldReader::GetRank() {
  const uint32_t v = U32();
  Require(v < kMaxRank || v == kNoRank.value);
  return Rank(v);
}

Slot FieldReader::GetSlot() {
  const uint32_t v = U32();
  Require(v < kMaxRank);
  return Slot(v);
}

int64_t FieldReader::GetTime() {
  const int64_t v = I64();
  Require(v >= 0);
  return v;
}

double FieldReader::GetDouble() { return std::bit_cast<double>(U64()); }

void Put(Writer& w, const Shard& v) {
  w.Str(v.name);
  w.U64(v.bytes);
  w.Str(v.group);
}

Shard GetShard(FieldReader& r) {
  Shard v;
  v.name = r.Str();
  v.bytes = r.U64();
  v.group = r.Str();
  return v;
}

void Put(Writer& w, const JoinInfo& v) {
  w.U32(v.protocol);
  w.Str(v.library);
  w.Str(v.fingerprint);
  w.List(v.shards, [&](const Shard& shard) { Put(w, shard); });
  w.U64(v.layout_hash);
  w.U64(v.total_steps);
  w.Str(v.data_address);
}

JoinInfo GetJoinInfo(FieldReader& r) {
  JoinInfo v;
  v.protocol = r.U32();
  v.library = r.Str();
  v.fingerprint = r.Str();
  r.List(&v.shards, [&] { return GetShard(r); });
  v.layout_hash = r.U64();
  v.total_steps = r.U64();
  r.Require(v.total_steps <= kMaxStep);
  v.data_address = r.Str();
  return v;
}

void Put(Writer& w, const Holding& v) {
  w.Bool(v.valid);
  w.U64(v.generation.value);
  w.U64(v.step.value);
}

Holding GetHolding(FieldReader& r) {
  Holding v;
  v.valid = r.Bool();
  v.generation = r.GetGeneration();
  v.step = r.GetStep();
  return v;
}

void Put(Writer& w, const Verified& v) {
  w.U64(v.generation.value);
  w.U64(v.step.value);
  w.U64(v.state_hash);
  w.U64(v.bytes);
  w.I64(v.begin_ns);
  w.I64(v.end_ns);
  w.U32(v.retries);
  w.U64(v.source.value);
}

Verified GetVerified(FieldReader& r) {
  Verified v;
  v.generation = r.GetGeneration();
  v.step = r.GetStep();
  v.state_hash = r.U64();
  v.bytes = r.U64();
  v.begin_ns = r.GetTime();
  v.end_ns = r.GetTime();
  v.retries = r.U32();
  v.source = r.GetIncarnation();
  return v;
}

void Put(Writer& w, const Echo& v) {
  w.U64(v.nonce);
  w.Bool(v.ok);
  w.U64(v.bytes);
  w.I64(v.duration_ns);
  w.Str(v.error);
}

Echo GetEcho(FieldReader& r) {
  Echo v;
  v.nonce = r.U64();
  v.ok = r.Bool();
  v.bytes = r.U64();
  v.duration_ns = r.GetTime();
  v.error = r.Str();
  return v;
}

void Put(Writer& w, const WorkerState& v) {
  w.U64(v.word.Pack());
  w.U8(static_cast<uint8_t>(v.position));
  w.U64(v.starting.value);
  w.U64(v.stop_at.value);
  w.U32(v.rank.value);
  w.U64(v.frozen.value);
  Put(w, v.holding);
  w.U64(v.parked.value);
  Put(w, v.verified);
  w.U64(v.cannot_pull.value);
  w.Str(v.pull_error);
  w.U64(v.connected.value);
  w.I64(v.connected_ns);
  w.U64(v.first_commit.value);
  w.I64(v.first_commit_ns);
  w.U64(v.broken.value);
  w.U64(v.broken_step.value);
  w.Str(v.broken_why);
  w.Bool(v.done);
  w.U64(std::bit_cast<uint64_t>(v.loss));
  w.Bool(v.has_loss);
  Put(w, v.echo);
  w.Str(v.error);
}

WorkerState GetWorkerState(FieldReader& r) {
  WorkerState v;
  v.word = Word::Unpack(r.U64());
  const uint8_t position = r.U8();
  r.Require(position <= static_cast<uint8_t>(Position::kParked));
  v.position = static_cast<Position>(position);
  v.starting = r.GetStep();
  v.stop_at = r.GetStep();
  v.rank = r.GetRank();
  v.frozen = r.GetGeneration();
  v.holding = GetHolding(r);
  v.parked = r.GetGeneration();
  v.verified = GetVerified(r);
  v.cannot_pull = r.GetGeneration();
  v.pull_error = r.Str();
  v.connected = r.GetGeneration();
  v.connected_ns = r.GetTime();
  v.first_commit = r.GetGeneration();
  v.first_commit_ns = r.GetTime();
  v.broken = r.GetGeneration();
  v.broken_step = r.GetStep();
  v.broken_why = r.Str();
  v.done = r.Bool();
  v.loss = r.GetDouble();
  v.has_loss = r.Bool();
  v.echo = GetEcho(r);
  v.error = r.Str();
  return v;
}

void Put(Writer& w, const Peer& v) {
  w.U32(v.rank.value);
  w.U64(v.worker.value);
  w.Str(v.address);
}

Peer GetPeer(FieldReader& r) {
  Peer v;
  v.rank = r.GetRank();
  v.worker = r.GetIncarnation();
  v.address = r.Str();
  return v;
}

void Put(Writer& w, const WorkerOrder& v) {
  w.U32(v.slot.value);
  w.U64(v.worker.value);
  w.U64(v.retire.value);
  w.Bool(v.run);
  w.Str(v.refuse);
  w.U8(static_cast<uint8_t>(v.mode));
  w.U64(v.generation.value);
  w.U32(v.rank.value);
  w.U32(v.world);
  w.U64(v.recovery_step.value);
  w.Bool(v.pull);
  w.Bool(v.staged);
  w.List(v.sources, [&](const Peer& peer) { Put(w, peer); });
  w.List(v.peers, [&](const Peer& peer) { Put(w, peer); });
  w.U64(v.stop_at.value);
  w.U64(v.echo_nonce);
  Put(w, v.echo_peer);
}

WorkerOrder GetWorkerOrder(FieldReader& r) {
  WorkerOrder v;
  v.slot = r.GetSlot();
  v.worker = r.GetIncarnation();
  v.retire = r.GetIncarnation();
  v.run = r.Bool();
  v.refuse = r.Str();
  const uint8_t mode = r.U8();
  r.Require(mode <= static_cast<uint8_t>(Mode::kFinish));
  v.mode = static_cast<Mode>(mode);
  v.generation = r.GetGeneration();
  v.rank = r.GetRank();
  v.world = r.U32();
  r.Require(v.world <= kMaxRank);
  v.recovery_step = r.GetStep();
  v.pull = r.Bool();
  v.staged = r.Bool();
  r.List(&v.sources, [&] { return GetPeer(r); });
  r.List(&v.peers, [&] { return GetPeer(r); });
  v.stop_at = r.GetStep();
  v.echo_nonce = r.U64();
  v.echo_peer = GetPeer(r);
  return v;
}

void Put(Writer& w, const WorkerWelcome& v) {
  w.Str(v.job);
  w.Str(v.node);
  w.U32(v.slot.value);
  w.U64(v.worker.value);
  w.Str(v.token);
  w.Str(v.address);
  w.Str(v.step_log);
  w.U64(v.seed);
  w.U32(v.workers_per_node);
}

WorkerWelcome GetWorkerWelcome(FieldReader& r) {
  WorkerWelcome v;
  v.job = r.Str();
  v.node = r.Str();
  v.slot = r.GetSlot();
  v.worker = r.GetIncarnation();
  v.token = r.Str();
  v.address = r.Str();
  v.step_log = r.Str();
  v.seed = r.U64();
  v.workers_per_node = r.U32();
  r.Require(v.workers_per_node >= 1 && v.workers_per_node < kMaxRank);
  return v;
}

}  // namespace locum
