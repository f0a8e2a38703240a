// Orders that no right coordinator gives.
#include "worker/protocol.h"

#include <gtest/gtest.h>

#include <array>
#include <future>

namespace locum {
namespace {

class ProtocolTest : public testing::Test {
 protected:
  ProtocolTest() {
    page.stop_at = kNoStop.value;
    EXPECT_TRUE(state.AddMemory({"w", bytes.size(), "all"}, bytes.data()).ok());
    protocol.Ready(&state);
  }
  WorkerOrder Order(Mode mode) const {
    WorkerOrder order;
    order.worker = Incarnation(1);
    order.mode = mode;
    order.generation = Generation(1);
    order.rank = Rank(0);
    order.world = 1;
    order.peers = {{Rank(0), Incarnation(1), "127.0.0.1:1"}};
    return order;
  }
  void Verify() {
    protocol.TakeOrder(Order(Mode::kRecover));
    const auto task = protocol.AwaitTask();
    protocol.Verified(*task, {Generation(1), locum::Step(0), 5});
    protocol.TaskDone();
    protocol.TakeOrder(Order(Mode::kRun));
  }
  WorkerOrder Back() const {
    WorkerOrder order = Order(Mode::kRecover);
    order.recovery_step = locum::Step(3);
    order.pull = true;
    return order;
  }

  Page page{};
  std::array<char, 8> bytes{};
  RegisteredState state;
  Protocol protocol{&page, Incarnation(1), 0, [] {}, [] {}};
};

TEST_F(ProtocolTest, RecoverInTheGenerationThatRuns_ChangesNothing) {
  Verify();
  const auto turn = protocol.NextTurn();
  ASSERT_TRUE(turn.ok());
  protocol.TakeOrder(Back());
  EXPECT_EQ(protocol.TakeReport(true)->verified.generation, Generation(1));
}

TEST_F(ProtocolTest, RecoverBehindAnOrderToRun_TakesTheOrderBack) {
  Verify();
  protocol.TakeOrder(Back());
  auto turn = std::async(std::launch::async, [&] { return protocol.NextTurn(); });
  const auto task = protocol.AwaitTask();
  ASSERT_TRUE(protocol.BeginOverwrite(*task).ok());  // the trainer has parked
  protocol.EndOverwrite(*task, nullptr);
  protocol.CannotPull(*task, "nobody serves it");
  protocol.TaskDone();
  EXPECT_EQ(protocol.word().state, WordState::kTorn);
  protocol.Leave();
  EXPECT_FALSE(turn.get().ok());
}

}  // namespace
}  // namespace locum
