// Any bytes as a message of either side. What is accepted must go out and come back unchanged: then no value was taken
// that this program could not have made.
#include <cstdint>
#include <cstdlib>

#include "adapters/grpc/convert.h"
#include "seeds.h"

namespace {

template <class W>
void Try(const W& message) {
  auto taken = locum::FromWire(message);
  if (!taken.ok()) return;
  auto again = locum::ToWire(*taken);
  auto back = locum::FromWire(again);
  if (!back.ok() || locum::ToWire(*back).SerializeAsString() != again.SerializeAsString()) std::abort();
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  using namespace locum;  // NOLINT
  WorkerReport worker;
  worker.worker = Incarnation(5);
  worker.state.word = {Generation(3), Step(9), WordState::kFrozen};
  worker.state.rank = Rank(2);
  worker.state.holding = {true, Generation(3), Step(9)};
  worker.exit = WorkerExit{1, 9, true, "killed", "tail"};
  wire::FromAgent hello, ready, report;
  *hello.mutable_hello() = ToWire(NodeHello{"node-1", 1, "0.1.0", "j", Incarnation(9), "::1", Incarnation(1),
                                            Incarnation(2), 3, 4, Term(5), 6, "/d"});
  *ready.mutable_ready() =
      ToWire(Slot(1), Incarnation(7), {1, "0.1.0", "isa=x\n", {{"w", 10, "all"}}, 7, 100, "::1:9"});
  *report.mutable_report() = ToWire(NodeReport{Term(1), 2, {worker}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, true});
  WorkerOrder order;
  order.worker = Incarnation(5);
  order.mode = Mode::kRun;
  order.rank = Rank(1);
  order.peers = {{Rank(0), Incarnation(4), "127.0.0.1:1"}};
  wire::ToAgent welcome, down;
  *welcome.mutable_welcome() =
      ToWire(Welcome{Term(1), "j", Incarnation(2), Incarnation(3), {"a", "b"}, 2, 3, Duration(4)});
  *down.mutable_order() = ToWire(NodeOrder{Term(1), 2, {order}, true, true, "why"});
  ClusterView view;
  view.job = "j";
  view.alarms.push_back({"no_spare", "", "text", Duration(5)});
  view.nodes.push_back({"node-1", NodeState::kHealthy, Role::kActive, true, "::1", 1, 2, {}, "", {worker}});
  view.ranks.push_back({Rank(0), "node-1", Slot(0), Incarnation(5), 6, Step(7), "/l", "/s", 8});
  wire::StatusReply status;
  *status.mutable_view() = ToWire(view);
  PersistentState state;
  state.spec.job = "j";
  state.ranks = {{Rank(0), "node-1", "node-2", Slot(0), Incarnation(5)}};
  state.nodes = {{"node-1", NodeState::kProbation, Role::kSpare, Incarnation(6)}};
  return {hello.SerializeAsString(),
          ready.SerializeAsString(),
          report.SerializeAsString(),
          welcome.SerializeAsString(),
          down.SerializeAsString(),
          status.SerializeAsString(),
          ToWire(Event(NodeReported{1, NodeReport{Term(1), 2, {worker}, {}}})).SerializeAsString(),
          ToWire(state.spec, Term(1), Incarnation(2), &state).SerializeAsString()};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int length = static_cast<int>(size);
  locum::wire::FromAgent up;
  if (up.ParseFromArray(data, length)) {
    if (up.has_hello()) Try(up.hello());
    if (up.has_report()) Try(up.report());
    if (up.has_ready()) {
      auto ready = locum::FromWire(up.ready());
      if (ready.ok() && !locum::FromWire(locum::ToWire(ready->slot, ready->worker, ready->info)).ok()) std::abort();
    }
  }
  locum::wire::ToAgent down;
  if (down.ParseFromArray(data, length)) {
    if (down.has_welcome()) Try(down.welcome());
    if (down.has_order()) Try(down.order());
  }
  locum::wire::StatusReply status;
  if (status.ParseFromArray(data, length)) Try(status.view());
  locum::wire::CoreEvent event;
  if (event.ParseFromArray(data, length)) Try(event);
  locum::wire::CoreStart start;
  if (start.ParseFromArray(data, length)) {
    auto taken = locum::FromWire(start);
    if (taken.ok() && taken->stored) Try(locum::ToWire(*taken->stored));
  }
  return 0;
}
