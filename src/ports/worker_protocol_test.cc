#include "ports/worker_protocol.h"

#include <gtest/gtest.h>

#include <limits>

namespace locum {
namespace {

WorkerState FullState() {
  WorkerState v;
  v.word = {Generation(7), Step(123), WordState::kUpdating};
  v.position = Position::kInCollective;
  v.starting = Step(123);
  v.stop_at = Step(130);
  v.rank = Rank(3);
  v.frozen = Generation(6);
  v.holding = {true, Generation(5), Step(122)};
  v.parked = Generation(6);
  v.verified = {Generation(6), Step(122), 0xdeadbeef, 1000, 5, 6, 2, Incarnation(99)};
  v.cannot_pull = Generation(4);
  v.pull_error = "rank 1: connection reset";
  v.connected = Generation(7);
  v.connected_ns = 77;
  v.first_commit = Generation(7);
  v.first_commit_ns = 78;
  v.broken = Generation(5);
  v.broken_step = Step(121);
  v.broken_why = "reset";
  v.done = true;
  v.loss = -0.0;
  v.has_loss = true;
  v.echo = {9, true, 10, 11, "x"};
  v.error = "e";
  return v;
}

WorkerOrder FullOrder() {
  WorkerOrder v;
  v.slot = Slot(1);
  v.worker = Incarnation(5);
  v.retire = Incarnation(4);
  v.run = false;
  v.refuse = "layout differs";
  v.mode = Mode::kRecover;
  v.generation = Generation(kMaxGeneration);
  v.rank = kNoRank;
  v.world = 8;
  v.recovery_step = Step(kMaxStep);
  v.pull = true;
  v.staged = true;
  v.sources = {{Rank(0), Incarnation(1), "127.0.0.1:1"}, {kNoRank, Incarnation(2), "[::1]:2"}};
  v.peers = {{Rank(1), Incarnation(3), ""}};
  v.stop_at = Step(5);
  v.echo_nonce = 6;
  v.echo_peer = {Rank(2), Incarnation(7), "10.0.0.1:3"};
  return v;
}

TEST(WorkerProtocol, EveryMessage_ComesBackAsItWas) {
  const JoinRequest join{kProtocolVersion, Incarnation(42), "0.1.0"};
  auto join_back = DecodeJoin(EncodeJoin(join));
  ASSERT_TRUE(join_back.ok());
  EXPECT_EQ(join_back->worker, join.worker);
  EXPECT_EQ(join_back->library, join.library);
  const JoinInfo info{1, "0.1.0", "a=1\n", {{"w", 5, "all"}, {"b", 0, "all"}}, 7, 100, "127.0.0.1:9"};
  EXPECT_EQ(*DecodeReady(EncodeReady(info)), info);
  EXPECT_EQ(*DecodeState(EncodeState(FullState())), FullState());
  EXPECT_EQ(*DecodeState(EncodeState({})), WorkerState{});
  EXPECT_EQ(*DecodeOrder(EncodeOrder(FullOrder())), FullOrder());
  EXPECT_EQ(*DecodeOrder(EncodeOrder({})), WorkerOrder{});
  EXPECT_EQ(*DecodeRefused(EncodeRefused("why")), "why");
  EXPECT_EQ(*DecodeAbort(EncodeAbort(Generation(3))), Generation(3));
  const WorkerWelcome welcome{"job", "node", Slot(1), Incarnation(9), "t", "127.0.0.1", "/log", 42, 2};
  auto back = DecodeWelcome(EncodeWelcome(welcome));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(EncodeWelcome(*back), EncodeWelcome(welcome));
  EXPECT_EQ(back->seed, 42u);
  EXPECT_EQ(*TypeOf(EncodeResend()), WorkerMessage::kResend);
}

TEST(WorkerProtocol, LossBits_AreKept) {
  WorkerState v;
  v.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(EncodeState(*DecodeState(EncodeState(v))), EncodeState(v));
}

TEST(WorkerProtocol, ShortOrLongMessage_IsRejected) {
  for (const std::string& whole : {EncodeState(FullState()), EncodeOrder(FullOrder())}) {
    for (size_t n = 1; n < whole.size(); ++n) {
      EXPECT_FALSE(DecodeState(whole.substr(0, n)).ok());
      EXPECT_FALSE(DecodeOrder(whole.substr(0, n)).ok());
    }
    EXPECT_FALSE(DecodeState(whole + "x").ok());
    EXPECT_FALSE(DecodeOrder(whole + "x").ok());
  }
}

TEST(WorkerProtocol, ValueOutOfRange_IsRejected) {
  WorkerOrder order = FullOrder();
  order.mode = static_cast<Mode>(5);
  EXPECT_FALSE(DecodeOrder(EncodeOrder(order)).ok());
  order = FullOrder();
  order.generation = Generation(kMaxGeneration + 1);
  EXPECT_FALSE(DecodeOrder(EncodeOrder(order)).ok());
  order = FullOrder();
  order.stop_at = Step(kMaxStep + 1);
  EXPECT_FALSE(DecodeOrder(EncodeOrder(order)).ok());
  order = FullOrder();
  order.rank = Rank(2'000'000);
  EXPECT_FALSE(DecodeOrder(EncodeOrder(order)).ok());
  WorkerState state = FullState();
  state.position = static_cast<Position>(4);
  EXPECT_FALSE(DecodeState(EncodeState(state)).ok());
  state = FullState();
  state.connected_ns = -1;
  EXPECT_FALSE(DecodeState(EncodeState(state)).ok());
  WorkerWelcome welcome;
  welcome.workers_per_node = 0;
  EXPECT_FALSE(DecodeWelcome(EncodeWelcome(welcome)).ok());
}

TEST(WorkerProtocol, WrongOrUnknownType_IsNamed) {
  EXPECT_FALSE(TypeOf("").ok());
  EXPECT_FALSE(TypeOf("\x63").ok());
  const Status status = DecodeOrder(EncodeResend()).status();
  EXPECT_NE(status.message().find("Resend message where Order was expected"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace locum
