#include "ports/worker_protocol.h"

#include "ports/field_codec.h"

namespace locum {
namespace {

const char* NameOf(WorkerMessage type) {
  switch (type) {
    case WorkerMessage::kJoin: return "Join";
    case WorkerMessage::kReady: return "Ready";
    case WorkerMessage::kState: return "State";
    case WorkerMessage::kWelcome: return "Welcome";
    case WorkerMessage::kRefused: return "Refused";
    case WorkerMessage::kOrder: return "Order";
    case WorkerMessage::kAbort: return "Abort";
    case WorkerMessage::kResend: return "Resend";
  }
  return nullptr;
}

Writer Begin(WorkerMessage type) {
  Writer w;
  w.U8(static_cast<uint8_t>(type));
  return w;
}

// Decodes the fields behind the type byte with `get`, and insists that nothing is left.
template <class F>
auto Decode(std::string_view packet, WorkerMessage type, F get) -> Result<decltype(get(std::declval<FieldReader&>()))> {
  Result<WorkerMessage> found = TypeOf(packet);
  if (!found.ok()) return found.status();
  if (*found != type) {
    return Invalid(std::string("a ") + NameOf(*found) + " message where " + NameOf(type) + " was expected");
  }
  FieldReader r(packet.substr(1));
  auto value = get(r);
  if (!r.Done()) {
    return Invalid(std::string(NameOf(type)) + " message of " + std::to_string(packet.size()) +
                   " bytes is too short, too long, or has a value out of range");
  }
  return value;
}

}  // namespace

Result<WorkerMessage> TypeOf(std::string_view packet) {
  if (packet.empty()) return Invalid("empty message between worker and node");
  if (packet.size() > kMaxWorkerMessage) {
    return Invalid("message of " + std::to_string(packet.size()) + " bytes between worker and node");
  }
  const auto type = static_cast<WorkerMessage>(packet[0]);
  if (!NameOf(type)) {
    return Invalid("message of unknown type " + std::to_string(static_cast<uint8_t>(packet[0])) +
                   " between worker and node; do both have the same Locum version?");
  }
  return type;
}

std::string EncodeJoin(const JoinRequest& v) {
  Writer w = Begin(WorkerMessage::kJoin);
  w.U32(v.protocol);
  w.U64(v.worker.value);
  w.Str(v.library);
  return w.Take();
}

Result<JoinRequest> DecodeJoin(std::string_view packet) {
  return Decode(packet, WorkerMessage::kJoin, [](FieldReader& r) {
    JoinRequest v;
    v.protocol = r.U32();
    v.worker = r.GetIncarnation();
    v.library = r.Str();
    return v;
  });
}

std::string EncodeReady(const JoinInfo& v) {
  Writer w = Begin(WorkerMessage::kReady);
  Put(w, v);
  return w.Take();
}

Result<JoinInfo> DecodeReady(std::string_view packet) { return Decode(packet, WorkerMessage::kReady, GetJoinInfo); }

std::string EncodeState(const WorkerState& v) {
  Writer w = Begin(WorkerMessage::kState);
  Put(w, v);
  return w.Take();
}

Result<WorkerState> DecodeState(std::string_view packet) {
  return Decode(packet, WorkerMessage::kState, GetWorkerState);
}

std::string EncodeWelcome(const WorkerWelcome& v) {
  Writer w = Begin(WorkerMessage::kWelcome);
  Put(w, v);
  return w.Take();
}

Result<WorkerWelcome> DecodeWelcome(std::string_view packet) {
  return Decode(packet, WorkerMessage::kWelcome, GetWorkerWelcome);
}

std::string EncodeRefused(const std::string& text) {
  Writer w = Begin(WorkerMessage::kRefused);
  w.Str(text);
  return w.Take();
}

Result<std::string> DecodeRefused(std::string_view packet) {
  return Decode(packet, WorkerMessage::kRefused, [](FieldReader& r) { return r.Str(); });
}

std::string EncodeOrder(const WorkerOrder& v) {
  Writer w = Begin(WorkerMessage::kOrder);
  Put(w, v);
  return w.Take();
}

Result<WorkerOrder> DecodeOrder(std::string_view packet) {
  return Decode(packet, WorkerMessage::kOrder, GetWorkerOrder);
}

std::string EncodeAbort(Generation generation) {
  Writer w = Begin(WorkerMessage::kAbort);
  w.U64(generation.value);
  return w.Take();
}

Result<Generation> DecodeAbort(std::string_view packet) {
  return Decode(packet, WorkerMessage::kAbort, [](FieldReader& r) { return r.GetGeneration(); });
}

std::string EncodeResend() { return Begin(WorkerMessage::kResend).Take(); }

}  // namespace locum
