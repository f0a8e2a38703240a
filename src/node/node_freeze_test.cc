// The ladder after a freeze: the abort, and the deadlines that end a worker.
#include <gtest/gtest.h>

#include "node/node_script.h"

namespace locum::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(NodeScript, FreezeOfAWorkerInItsStep_AbortsItsCollectiveAtOnceAndOnce) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  Order({To(id, Mode::kFreeze, 2)});
  EXPECT_EQ(Get<Abort>().worker, id);
  EXPECT_EQ(Get<Abort>().generation, Generation(1));
  Page(id, kRunning, Position::kInCollective);
  EXPECT_EQ(Count<Abort>(), 0);
  Order({To(id, Mode::kFreeze, 3)});
  EXPECT_EQ(Count<Abort>(), 1);
}

TEST_F(NodeScript, FreezeOfAParkedWorker_AbortsNothing) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kParked);
  Order({To(id, Mode::kFreeze, 2)});
  EXPECT_EQ(Count<Abort>(), 0);
  Answer(id, 2, 2);
  Pass(seconds(600));
  EXPECT_EQ(Count<EndWorker>(), 0);
}

TEST_F(NodeScript, WorkerThatSlipsOutOfAnOldPark_IsAbortedAllTheSame) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kParked);
  Order({To(id, Mode::kFreeze, 2)});
  Page(id, kRunning, Position::kInCollective);
  EXPECT_EQ(Count<Abort>(), 1);
}

TEST_F(NodeScript, WorkerWithoutAGeneration_HasNothingToAbort) {
  Incarnation id = ReadyWorker();
  Page(id, Word{}, Position::kStarting);
  Order({To(id, Mode::kFreeze, 1)});
  EXPECT_EQ(Count<Abort>(), 0);
}

TEST_F(NodeScript, FreezeNotAnswered_EndsTheWorkerAtTheDeadline) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  Order({To(id, Mode::kFreeze, 2)});
  Pass(seconds(5) - milliseconds(1));
  EXPECT_EQ(Count<EndWorker>(), 0);
  Pass(milliseconds(1));
  EXPECT_EQ(Get<EndWorker>().stop.grace, Duration(0));
  EndOf(id);
  EXPECT_EQ(last.workers[0].exit->what, "exit status 3 (did not answer the freeze of generation 2 within 5000 ms)");
}

TEST_F(NodeScript, AgentThatStoodStillItself_GivesTheWorkerItsTimeAnew) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  Order({To(id, Mode::kFreeze, 2)});
  Pass(seconds(2));
  Stand(seconds(30));
  EXPECT_EQ(Count<EndWorker>(), 0);
  Pass(seconds(3) - milliseconds(1));
  EXPECT_EQ(Count<EndWorker>(), 0);
  Pass(milliseconds(1));
  EXPECT_EQ(Count<EndWorker>(), 1);
}

TEST_F(NodeScript, CollectiveThatDoesNotBreak_EndsTheWorkerAtTheDeadline) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kInCollective);
  Order({To(id, Mode::kFreeze, 2)});
  Answer(id, 2, 0);
  Pass(seconds(10));
  EXPECT_EQ(Get<EndWorker>().stop.grace, Duration(0));
}

TEST_F(NodeScript, WorkerBeyondItsDeadline_IsEndedWhenItsStacksAreSaved) {
  saves_stacks = false;
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kInCollective);
  Order({To(id, Mode::kFreeze, 2)});
  Answer(id, 2, 0);
  Pass(seconds(10));
  EXPECT_EQ(Get<SaveStacks>().file, "/dir/worker.stacks");
  EXPECT_EQ(Count<EndWorker>(), 0);
  Pass(seconds(1));
  EXPECT_EQ(Count<SaveStacks>(), 0);
  EXPECT_EQ(Count<EndWorker>(), 0);
  Do(StacksSaved{id});
  EXPECT_EQ(Get<EndWorker>().stop.grace, Duration(0));
  EndOf(id);
  EXPECT_NE(last.workers[0].exit->what.find("was still in its collective 10000 ms"), std::string::npos);
}

TEST_F(NodeScript, StacksThatAreNeverSaved_DoNotKeepTheWorkerAlive) {
  saves_stacks = false;
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  Order({To(id, Mode::kFreeze, 2)});
  Pass(seconds(5));
  EXPECT_EQ(Count<SaveStacks>(), 1);
  Pass(seconds(3));
  EXPECT_EQ(Get<EndWorker>().stop.grace, Duration(0));
}

TEST_F(NodeScript, LateWorkerWithTheLastCopy_IsEndedOnceAnotherHoldsIt) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kInCollective);
  WorkerOrder order = To(id, Mode::kFreeze, 2);
  order.expendable = false;
  Order({order});
  Answer(id, 2, 0);
  Pass(seconds(3600));
  EXPECT_EQ(Count<EndWorker>(), 0);
  order.expendable = true;
  Order({order});
  EXPECT_EQ(Count<EndWorker>(), 1);
}

TEST_F(NodeScript, LongComputation_HasUntilTheParkDeadline) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  Order({To(id, Mode::kFreeze, 2)});
  Answer(id, 2, 0);
  Order({To(id, Mode::kRecover, 2)});
  Pass(seconds(120) - milliseconds(1));
  EXPECT_EQ(Count<EndWorker>(), 0);
  Pass(milliseconds(1));
  EXPECT_EQ(Count<EndWorker>(), 1);
}

TEST_F(NodeScript, NextFreezeWhileUnparked_DoesNotStartThePatienceAnew) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kInCollective);
  Order({To(id, Mode::kFreeze, 2)});
  Answer(id, 2, 0);
  Pass(seconds(6));
  Order({To(id, Mode::kFreeze, 3)});
  Answer(id, 3, 0);
  Pass(seconds(4));
  EXPECT_EQ(Count<EndWorker>(), 1);
}

TEST_F(NodeScript, ParkedAndRunningAgain_IsNotHeldToTheOldDeadlines) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kInCollective);
  Order({To(id, Mode::kFreeze, 2)});
  Answer(id, 2, 2);
  Order({To(id, Mode::kRun, 2)});
  Page(id, Word{Generation(2), locum::Step(9), WordState::kOpen}, Position::kInCollective);
  Pass(seconds(600));
  EXPECT_EQ(Count<EndWorker>(), 0);
}

// The order to run was there before the trainer came to NextStep, so it never had to wait.
TEST_F(NodeScript, RunningAgainWithoutHavingWaited_IsNotHeldToTheOldDeadlines) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  Order({To(id, Mode::kFreeze, 2)});
  Answer(id, 2, 0);
  Order({To(id, Mode::kRecover, 2)});
  Order({To(id, Mode::kRun, 2)});
  WorkerState said;
  said.frozen = Generation(2);
  said.word = {Generation(2), locum::Step(9), WordState::kOpen};
  Do(WorkerSaid{id, said});
  Page(id, said.word, Position::kInCollective);
  Pass(seconds(600));
  EXPECT_EQ(Count<EndWorker>(), 0);
}

TEST_F(NodeScript, WhileUnparked_ThePageIsLookedAtOften) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  Order({To(id, Mode::kFreeze, 2)});
  Do(CoordinatorLost{"cut"});
  EXPECT_LE(wake_at, now + milliseconds(100));
}

}  // namespace
}  // namespace locum::node
