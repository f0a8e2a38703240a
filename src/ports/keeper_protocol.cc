// Fields in the order of the structures. A list is a u32 count and its items, a text a u32 length and its bytes,
// a duration i64 nanoseconds. A packet that is short, too long, or holds a value out of range is rejected whole.
#include "ports/keeper_protocol.h"

#include <utility>

#include "ports/field_codec.h"

namespace locum {
namespace {

void Head(Writer* w, KeeperMessage type) { w->U8(static_cast<uint8_t>(type)); }

Status Malformed(const char* what) {
  return Invalid(std::string("malformed ") + what + " message between agent and keeper; do both run the same locum?");
}

// A reader behind the type byte; not ok when the type is another one.
FieldReader Open(std::string_view packet, KeeperMessage type) {
  bool expected = !packet.empty() && static_cast<uint8_t>(packet[0]) == static_cast<uint8_t>(type);
  FieldReader r(expected ? packet.substr(1) : packet);
  r.Require(expected && packet.size() <= kMaxKeeperMessage);
  return r;
}

// 0 is the incarnation of nothing; no message is about nothing.
Incarnation SomeIncarnation(FieldReader* r) {
  Incarnation incarnation = r->GetIncarnation();
  r->Require(incarnation.value != 0);
  return incarnation;
}

Duration Grace(FieldReader* r) {
  Duration grace(r->I64());
  r->Require(grace >= Duration(0) && grace <= kMaxGrace);
  return grace;
}

void PutExit(Writer* w, const WorkerExit& exit) {
  w->U32(static_cast<uint32_t>(exit.status));
  w->U32(static_cast<uint32_t>(exit.signal));
  w->Bool(exit.stopped);
  w->Str(exit.what);
  w->Str(exit.log_tail);
}

WorkerExit GetExit(FieldReader* r) {
  WorkerExit exit;
  exit.status = static_cast<int32_t>(r->U32());
  exit.signal = static_cast<int32_t>(r->U32());
  r->Require(exit.status >= 0 && exit.status <= kMaxExitStatus && exit.signal >= 0 && exit.signal <= kMaxSignal);
  exit.stopped = r->Bool();
  exit.what = r->Str();
  exit.log_tail = r->Str();
  return exit;
}

}  // namespace

std::string EncodeStart(const StartWorker& start) {
  Writer w;
  Head(&w, KeeperMessage::kStart);
  w.U32(start.slot.value);
  w.U64(start.worker.value);
  w.List(start.command, [&](const std::string& word) { w.Str(word); });
  w.Str(start.log);
  w.I64(start.grace.count());
  Put(w, start.welcome);
  return w.Take();
}

std::string EncodeStop(const StopWorker& stop) {
  Writer w;
  Head(&w, KeeperMessage::kStop);
  w.U64(stop.worker.value);
  w.I64(stop.grace.count());
  return w.Take();
}

std::string EncodeForget(Incarnation worker) {
  Writer w;
  Head(&w, KeeperMessage::kForget);
  w.U64(worker.value);
  return w.Take();
}

std::string EncodeShutdown(const ShutdownNode& shutdown) {
  Writer w;
  Head(&w, KeeperMessage::kShutdown);
  w.I64(shutdown.grace.count());
  w.U32(static_cast<uint32_t>(shutdown.status));
  w.Str(shutdown.reason);
  return w.Take();
}

std::string EncodeRemember(const std::string& notes) {
  Writer w;
  Head(&w, KeeperMessage::kRemember);
  w.Str(notes);
  return w.Take();
}

std::string EncodeKeeperHello(const KeeperHello& hello) {
  Writer w;
  Head(&w, KeeperMessage::kHello);
  w.U64(hello.keeper.value);
  w.U32(static_cast<uint32_t>(hello.keeper_pid));
  w.U32(hello.agent_starts);
  w.List(hello.workers, [&](Incarnation worker) { w.U64(worker.value); });
  w.Str(hello.notes);
  return w.Take();
}

std::string EncodeWorker(const WorkerRecord& record) {
  Writer w;
  Head(&w, KeeperMessage::kWorker);
  w.U32(record.slot.value);
  w.U64(record.worker.value);
  w.U32(static_cast<uint32_t>(record.pid));
  w.Bool(record.joined);
  w.Bool(record.stopping);
  w.Bool(record.stuck);
  w.Bool(record.ended);
  PutExit(&w, record.exit);
  w.Str(record.log);
  w.Str(record.step_log);
  return w.Take();
}

Result<KeeperMessage> KeeperTypeOf(std::string_view packet) {
  if (packet.empty()) return Invalid("empty message between agent and keeper");
  auto type = static_cast<KeeperMessage>(static_cast<uint8_t>(packet[0]));
  switch (type) {
    case KeeperMessage::kStart:
    case KeeperMessage::kStop:
    case KeeperMessage::kForget:
    case KeeperMessage::kShutdown:
    case KeeperMessage::kRemember:
    case KeeperMessage::kHello:
    case KeeperMessage::kWorker: return type;
  }
  return Invalid("unknown message type " + std::to_string(static_cast<int>(type)) + " between agent and keeper");
}

Result<StartWorker> DecodeStart(std::string_view packet) {
  FieldReader r = Open(packet, KeeperMessage::kStart);
  StartWorker start;
  start.slot = Slot(r.U32());
  start.worker = SomeIncarnation(&r);
  r.List(&start.command, [&] { return r.Str(); });
  start.log = r.Str();
  start.grace = Grace(&r);
  start.welcome = GetWorkerWelcome(r);
  if (!r.Done() || start.command.empty() || start.command[0].empty()) return Malformed("start");
  for (const std::string& word : start.command) {
    if (word.find('\0') != std::string::npos) return Malformed("start");
  }
  return start;
}

Result<StopWorker> DecodeStop(std::string_view packet) {
  FieldReader r = Open(packet, KeeperMessage::kStop);
  StopWorker stop;
  stop.worker = SomeIncarnation(&r);
  stop.grace = Grace(&r);
  if (!r.Done()) return Malformed("stop");
  return stop;
}

Result<Incarnation> DecodeForget(std::string_view packet) {
  FieldReader r = Open(packet, KeeperMessage::kForget);
  Incarnation worker = SomeIncarnation(&r);
  if (!r.Done()) return Malformed("forget");
  return worker;
}

Result<ShutdownNode> DecodeShutdown(std::string_view packet) {
  FieldReader r = Open(packet, KeeperMessage::kShutdown);
  ShutdownNode shutdown;
  shutdown.grace = Grace(&r);
  shutdown.status = static_cast<int32_t>(r.U32());
  shutdown.reason = r.Str();
  r.Require(shutdown.status >= 0 && shutdown.status <= 255);
  if (!r.Done()) return Malformed("shutdown");
  return shutdown;
}

Result<std::string> DecodeRemember(std::string_view packet) {
  FieldReader r = Open(packet, KeeperMessage::kRemember);
  std::string notes = r.Str();
  if (!r.Done() || notes.size() > kMaxNotes) return Malformed("remember");
  return notes;
}

Result<KeeperHello> DecodeKeeperHello(std::string_view packet) {
  FieldReader r = Open(packet, KeeperMessage::kHello);
  KeeperHello hello;
  hello.keeper = SomeIncarnation(&r);
  hello.keeper_pid = static_cast<int32_t>(r.U32());
  hello.agent_starts = r.U32();
  r.List(&hello.workers, [&] { return SomeIncarnation(&r); });
  hello.notes = r.Str();
  if (!r.Done() || hello.keeper_pid <= 0 || hello.notes.size() > kMaxNotes) return Malformed("hello");
  return hello;
}

Result<WorkerRecord> DecodeWorker(std::string_view packet) {
  FieldReader r = Open(packet, KeeperMessage::kWorker);
  WorkerRecord record;
  record.slot = Slot(r.U32());
  record.worker = SomeIncarnation(&r);
  record.pid = static_cast<int32_t>(r.U32());
  record.joined = r.Bool();
  record.stopping = r.Bool();
  record.stuck = r.Bool();
  record.ended = r.Bool();
  record.exit = GetExit(&r);
  record.log = r.Str();
  record.step_log = r.Str();
  if (!r.Done() || record.pid < 0) return Malformed("worker");
  return record;
}

}  // namespace locum
