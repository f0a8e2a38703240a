// Messages between worker and node: whatever is accepted is encoded again to exactly the same bytes.
#include "ports/worker_protocol.h"
#include "seeds.h"

using namespace locum;  // NOLINT

std::vector<std::string> FuzzSeeds() {
  JoinInfo info{kProtocolVersion, kVersion, "isa=x86-64-v4\n", {{"w", 10, "all"}, {"b", 2, "all"}}, 7, 100, "127.0.0.1:9"};
  WorkerState state;
  state.word = {Generation(3), Step(9), WordState::kFrozen};
  state.rank = Rank(2);
  state.holding = {true, Generation(3), Step(9)};
  state.verified = {Generation(3), Step(9), 5, 6, 7, 8, 1, Incarnation(11)};
  state.broken_why = "reset";
  state.echo = {1, true, 2, 3, "no"};
  state.loss = 1.5;
  WorkerOrder order;
  order.worker = Incarnation(5);
  order.mode = Mode::kRun;
  order.generation = Generation(2);
  order.rank = Rank(1);
  order.world = 2;
  order.sources = {{Rank(0), Incarnation(4), "127.0.0.1:1"}};
  order.peers = {{Rank(0), Incarnation(4), "127.0.0.1:1"}, {Rank(1), Incarnation(5), "[::1]:2"}};
  WorkerWelcome welcome{"job", "node", Slot(1), Incarnation(9), "token", "127.0.0.1", "/x", 42, 2};
  return {EncodeJoin({1, Incarnation(3), "0.1.0"}), EncodeReady(info),       EncodeState(state),
          EncodeWelcome(welcome),                   EncodeRefused("why"),    EncodeOrder(order),
          EncodeAbort(Generation(4)),               EncodeResend()};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in = FuzzText(data, size);
  if (!TypeOf(in).ok()) return 0;
  if (auto v = DecodeJoin(in); v.ok()) LOCUM_CHECK(EncodeJoin(*v) == in);
  if (auto v = DecodeReady(in); v.ok()) LOCUM_CHECK(EncodeReady(*v) == in);
  if (auto v = DecodeState(in); v.ok()) LOCUM_CHECK(EncodeState(*v) == in);
  if (auto v = DecodeWelcome(in); v.ok()) LOCUM_CHECK(EncodeWelcome(*v) == in);
  if (auto v = DecodeRefused(in); v.ok()) LOCUM_CHECK(EncodeRefused(*v) == in);
  if (auto v = DecodeOrder(in); v.ok()) LOCUM_CHECK(EncodeOrder(*v) == in);
  if (auto v = DecodeAbort(in); v.ok()) LOCUM_CHECK(EncodeAbort(*v) == in);
  return 0;
}
