// The agent among real processes: joining, orders, adoption, deadlines, the end.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "tests/node/node_fixture.h"

namespace locum::test {
namespace {

bool Exited(const WorkerReport& w) { return w.life == WorkerLife::kExited; }
bool Ready(const WorkerReport& w) { return w.life == WorkerLife::kReady; }

class AgentProcess : public NodeFixture {
 protected:
  WorkerOrder To(const WorkerReport& worker, Mode mode, uint64_t generation) {
    WorkerOrder order;
    order.slot = worker.slot;
    order.worker = worker.worker;
    order.mode = mode;
    order.generation = Generation(generation);
    order.rank = mode == Mode::kRecover || mode == Mode::kRun ? Rank(0) : kNoRank;
    order.world = 1;
    return order;
  }
};

TEST_F(AgentProcess, WorkerUnderWrapper_ItsOwnPidIsReportedAndItsEndCounts) {
  StartNode({"/bin/sh", "-c", WorkerProgram() + " join serve; sleep 1000"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  pid_t worker = coordinator_->Worker(0).pid;
  EXPECT_EQ(Read("/proc/" + std::to_string(worker) + "/comm"), "node_test_worke\n");
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_FALSE(coordinator_->Worker(0).exit->stopped);
  EXPECT_THAT(coordinator_->Worker(0).exit->what,
              testing::AnyOf("killed by SIGKILL",  // an older kernel tells it to the wrapper alone
                             "the process that joined is gone; its exit status went to its parent"));
  EXPECT_TRUE(AwaitMarked(2));
}

TEST_F(AgentProcess, WrapperThatBringsTheStatus_ItIsTheWorkers) {
  StartNode({"/bin/sh", "-c", WorkerProgram() + " join exit 7; exit $?"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_EQ(coordinator_->Worker(0).exit->what, "exit status 7");
}

TEST_F(AgentProcess, JoinWithUnknownIncarnation_IsRefused) {
  StartNode({WorkerProgram(), "join-as", "abc"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_NE(coordinator_->Worker(0).exit->log_tail.find("refused: no worker 0000000000000abc runs on this node"),
            std::string::npos);
}

TEST_F(AgentProcess, SecondJoinOfAWorker_IsRefused) {
  StartNode({WorkerProgram(), "join", "join"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_NE(coordinator_->Worker(0).exit->log_tail.find("has already joined, as process"), std::string::npos);
}

TEST_F(AgentProcess, Generation_RunsFromFreezeToFinish) {
  StartNode({WorkerProgram(), "join", "position", "3", "print", "before", "serve"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  EXPECT_GE(coordinator_->readies(), 1);
  EXPECT_EQ(coordinator_->ready().data_address, "127.0.0.1:1");
  WorkerReport worker = coordinator_->Worker(0);
  ASSERT_TRUE(AwaitLog(worker.log, "before"));
  Order({To(worker, Mode::kFreeze, 1)});
  ASSERT_TRUE(AwaitWorker(0, [](const WorkerReport& w) { return w.state.frozen == Generation(1); }));
  EXPECT_TRUE(coordinator_->Worker(0).state.holding.valid);
  Order({To(worker, Mode::kRecover, 1)});
  ASSERT_TRUE(AwaitWorker(0, [](const WorkerReport& w) { return w.state.verified.state_hash == 0x1234; }));
  EXPECT_EQ(coordinator_->Worker(0).log_offset, 0u);
  Order({To(worker, Mode::kRun, 1)});
  ASSERT_TRUE(AwaitWorker(0, [](const WorkerReport& w) { return w.state.word.generation == Generation(1); }));
  uint64_t offset = coordinator_->Worker(0).log_offset;
  EXPECT_EQ(offset, 0u);
  Order({To(worker, Mode::kFinish, 1)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_EQ(coordinator_->Worker(0).exit->what, "exit status 0");
  EXPECT_EQ(coordinator_->Worker(0).log_offset, offset);
}

TEST_F(AgentProcess, CommitInThePage_IsReportedWithinAHeartbeat) {
  StartNode({WorkerProgram(), "join", "commit", "41", "serve"});
  Order({RunSlot(0)});
  EXPECT_TRUE(AwaitWorker(0, [](const WorkerReport& w) {
    return w.state.word == Word{Generation(1), Step(41), WordState::kOpen};
  }));
}

TEST_F(AgentProcess, LastWordsAndLastStep_ComeBeforeTheEnd) {
  StartNode({WorkerProgram(), "join", "commit", "7", "say-broken", "exit", "5"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_EQ(coordinator_->Worker(0).state.broken_why, "said at the end");
  EXPECT_EQ(coordinator_->Worker(0).state.word.step, Step(7));
}

TEST_F(AgentProcess, StopAt_IsStoredInThePageAndReported) {
  StartNode({WorkerProgram(), "join", "starting", "19", "serve"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, [](const WorkerReport& w) { return Ready(w) && w.state.starting == Step(19); }));
  EXPECT_EQ(coordinator_->Worker(0).state.stop_at, kNoStop);
  WorkerOrder order = To(coordinator_->Worker(0), Mode::kRun, 1);
  order.stop_at = Step(20);
  Order({order});
  ASSERT_TRUE(AwaitWorker(0, [](const WorkerReport& w) { return w.state.stop_at == Step(20); }));
  EXPECT_EQ(coordinator_->Worker(0).state.starting, Step(19));
  ASSERT_TRUE(AwaitLog(coordinator_->Worker(0).log, "order mode 3 generation 1"));
  EXPECT_NE(Read(coordinator_->Worker(0).log).find("page stop_at 20"), std::string::npos);
}

TEST_F(AgentProcess, AgentKilled_NextOneAdoptsTheWorker) {
  StartNode({WorkerProgram(), "join", "print", "some output", "serve"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  WorkerReport before = coordinator_->Worker(0);
  ASSERT_TRUE(AwaitLog(before.log, "some output"));
  Order({To(before, Mode::kRun, 2)});
  ASSERT_TRUE(AwaitWorker(0, [](const WorkerReport& w) { return w.log_offset > 0; }));
  before = coordinator_->Worker(0);
  NodeHello first = coordinator_->hello();

  ::kill(first.agent_pid, SIGKILL);
  ASSERT_TRUE(coordinator_->AwaitAgent(kPatience));
  NodeHello second = coordinator_->hello();
  EXPECT_NE(second.agent, first.agent);
  EXPECT_EQ(second.keeper, first.keeper);
  EXPECT_EQ(second.term, Term(1));  // handed over
  EXPECT_EQ(second.job, "job");
  coordinator_->Send(LinkUp{MakeWelcome({"/no/command"}, std::chrono::seconds(20))});
  Order({RunSlot(0)});  // a worker should run here; it does
  ASSERT_TRUE(AwaitWorker(0, Ready));
  WorkerReport after = coordinator_->Worker(0);
  EXPECT_EQ(after.pid, before.pid);
  EXPECT_EQ(after.worker, before.worker);
  EXPECT_EQ(after.log_offset, before.log_offset);
  EXPECT_TRUE(AwaitLog(after.log, "resend"));

  Order({To(after, Mode::kFreeze, 2)});
  EXPECT_TRUE(AwaitWorker(0, [](const WorkerReport& w) { return w.state.frozen == Generation(2); }));
}

TEST_F(AgentProcess, WorkerThatEndsWhileNoAgentRuns_IsReportedByTheNextOne) {
  StartNode({WorkerProgram(), "join", "serve"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  pid_t worker = coordinator_->Worker(0).pid;
  ::kill(coordinator_->hello().agent_pid, SIGSTOP);
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(AwaitLog(dir_ + "/agent.log", "keeper worker_ended"));
  ::kill(coordinator_->hello().agent_pid, SIGKILL);
  ASSERT_TRUE(coordinator_->AwaitAgent(kPatience));
  coordinator_->Send(LinkUp{MakeWelcome({"/no/command"}, std::chrono::seconds(20))});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_EQ(coordinator_->Worker(0).exit->what, "killed by SIGKILL");
}

TEST_F(AgentProcess, CoordinatorLost_WorkersGoOn) {
  StartNode({WorkerProgram(), "join", "serve"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  coordinator_->Disconnect();
  ASSERT_TRUE(AwaitLog(dir_ + "/agent.log", "coordinator_lost"));
  EXPECT_EQ(Marked().size(), 4u);
}

TEST_F(AgentProcess, WorkerThatIsNotParked_IsToldToAbortAndEndedAtTheDeadline) {
  StartKeeper();
  ASSERT_TRUE(coordinator_->AwaitAgent(kPatience));
  Welcome welcome =
      MakeWelcome({WorkerProgram(), "join", "commit", "5", "position", "2", "serve-deaf"}, std::chrono::hours(1));
  welcome.collective_deadline = std::chrono::milliseconds(100);
  coordinator_->Send(LinkUp{welcome});
  Order({RunSlot(0)});
  ASSERT_TRUE(
      AwaitWorker(0, [](const WorkerReport& w) { return Ready(w) && w.state.position == Position::kInCollective; }));
  WorkerOrder freeze = To(coordinator_->Worker(0), Mode::kFreeze, 2);
  freeze.expendable = true;
  Order({freeze});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  WorkerReport worker = coordinator_->Worker(0);
  EXPECT_NE(worker.exit->log_tail.find("abort 1\n"), std::string::npos) << worker.exit->log_tail;
  EXPECT_TRUE(worker.exit->stopped);
  EXPECT_EQ(worker.exit->what,
            "killed by SIGKILL (was still in its collective 100 ms after the freeze of generation 2)");
}

TEST_F(AgentProcess, WorkerThatLeaves_IsEnded) {
  StartNode({WorkerProgram(), "join", "leave", "sleep"}, std::chrono::milliseconds(100));
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_NE(coordinator_->Worker(0).exit->what.find("closed the connection"), std::string::npos)
      << coordinator_->Worker(0).exit->what;
}

TEST_F(AgentProcess, RetiredWorker_IsEndedAndReplaced) {
  StartNode({WorkerProgram(), "tell-term", "join", "sleep"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  WorkerReport first = coordinator_->Worker(0);
  WorkerOrder order = RunSlot(0);
  order.retire = first.worker;
  Order({order});
  ASSERT_TRUE(AwaitWorker(0, [&](const WorkerReport& w) { return Ready(w) && w.worker != first.worker; }));
  EXPECT_TRUE(AwaitMarked(4));
  EXPECT_NE(Read(first.log).find("term"), std::string::npos);
  Order({order});  // once more, and late: the new one stays
  ASSERT_TRUE(coordinator_->Await(kPatience, [&](const FakeCoordinator& c) { return c.report().order == sequence_; }));
  EXPECT_TRUE(Ready(coordinator_->Worker(0)));
}

TEST_F(AgentProcess, RefusedWorker_IsToldAndEnded) {
  StartNode({WorkerProgram(), "join", "serve"}, std::chrono::milliseconds(100));
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  WorkerOrder order = To(coordinator_->Worker(0), Mode::kIdle, 0);
  order.refuse = "its layout differs";
  Order({order});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_NE(coordinator_->Worker(0).exit->log_tail.find("its layout differs"), std::string::npos);
}

TEST_F(AgentProcess, ShutdownOrder_EndsTheNodeWithStatusZero) {
  StartNode({WorkerProgram(), "tell-term", "join", "sleep"});
  Order({RunSlot(0), RunSlot(1)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  ASSERT_TRUE(AwaitWorker(1, Ready));
  NodeOrder order;
  order.term = Term(1);
  order.sequence = ++sequence_;
  order.shutdown = true;
  order.reason = "the job is done";
  coordinator_->Send(LinkOrder{order});
  EXPECT_EQ(AwaitEnd(keeper_), 0);
  EXPECT_EQ(Marked().size(), 0u);
  EXPECT_EQ(Errors(), "");
}

TEST_F(AgentProcess, RefusedNode_EndsWithStatusOneAndTheReason) {
  StartKeeper();
  ASSERT_TRUE(coordinator_->AwaitAgent(kPatience));
  coordinator_->Send(LinkRefused{"wrong token"});
  EXPECT_EQ(AwaitEnd(keeper_), 1);
  EXPECT_NE(Errors().find("wrong token"), std::string::npos);
  EXPECT_NE(Read(dir_ + "/agent.log").find("wrong token"), std::string::npos);
}

TEST_F(AgentProcess, Usage_IsReported) {
  StartNode({WorkerProgram(), "sleep"});
  auto has_usage = [](const FakeCoordinator& c) { return c.report().usage.memory_total > 0; };
  EXPECT_TRUE(coordinator_->Await(kPatience, has_usage));
}

}  // namespace
}  // namespace locum::test
