// Between the messages of proto/ and the structures of base/cluster.h and core/coordinator.h. ToWire takes what this
// process made; FromWire takes what a peer sent and refuses everything out of range, naming the field.
//
// Invariant: FromWire(ToWire(x)) == x for every x that this program makes. Texts that may grow without bound (log
// tails, reasons) are cut by ToWire to what FromWire takes, and made valid UTF-8, which protobuf asks for. Command words
// and paths are the user's bytes and go as they are.
#pragma once

#include "adapters/grpc/wire_check.h"
#include "base/cluster.h"
#include "core/coordinator.h"
#include "locum.pb.h"
#include "replay.pb.h"

namespace locum {

// At most `limit` bytes of `text`, the last ones, with every byte that is not part of valid UTF-8 replaced by '?'.
std::string Clean(const std::string& text, size_t limit = kMaxText);

wire::NodeHello ToWire(const NodeHello& in);
wire::NodeReport ToWire(const NodeReport& in);
wire::Ready ToWire(Slot slot, Incarnation worker, const JoinInfo& in);
wire::Welcome ToWire(const Welcome& in);
wire::NodeOrder ToWire(const NodeOrder& in);
wire::ClusterView ToWire(const ClusterView& in);

struct ReadyWorker {
  Slot slot;
  Incarnation worker;
  JoinInfo info;
};

Result<NodeHello> FromWire(const wire::NodeHello& in);
Result<NodeReport> FromWire(const wire::NodeReport& in);
Result<ReadyWorker> FromWire(const wire::Ready& in);
Result<Welcome> FromWire(const wire::Welcome& in);
Result<NodeOrder> FromWire(const wire::NodeOrder& in);
Result<ClusterView> FromWire(const wire::ClusterView& in);

// The log of the core's inputs.
wire::CoreStart ToWire(const JobSpec& spec, Term term, Incarnation cluster, const PersistentState* stored);
wire::CoreEvent ToWire(const Event& in);
wire::CoreAction ToWire(const Action& in);
wire::PersistentState ToWire(const PersistentState& in);

struct CoreBeginning {
  JobSpec spec;
  Term term;
  Incarnation cluster;
  std::optional<PersistentState> stored;
};
Result<CoreBeginning> FromWire(const wire::CoreStart& in);
Result<Event> FromWire(const wire::CoreEvent& in);
Result<PersistentState> FromWire(const wire::PersistentState& in);

// Parts that more than one file needs.
void Put(const WorkerReport& in, wire::WorkerReport* out);
void Put(const Usage& in, wire::Usage* out);
void Take(const wire::WorkerReport& in, WorkerReport* out, WireCheck& check);
void Take(const wire::Usage& in, Usage* out, WireCheck& check);

}  // namespace locum
