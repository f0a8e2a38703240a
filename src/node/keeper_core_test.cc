#include "node/keeper_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

namespace locum::keep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Incarnation kOne{1}, kTwo{2};

// Runs a keeper by hand: each Do is a step, and what it led to is in `actions`.
class KeeperScript : public testing::Test {
 protected:
  void Do(const Event& event) {
    actions = core.Step(event, now);
    for (const Action& action : actions) {
      if (const auto* wake = std::get_if<WakeAt>(&action)) wake_at = wake->when;
    }
  }
  void Pass(Duration d) {
    now = now + d;
    Do(Tick{});
  }
  template <class A>
  int Count() const {
    return static_cast<int>(
        std::count_if(actions.begin(), actions.end(), [](const Action& a) { return std::holds_alternative<A>(a); }));
  }
  template <class A>
  const A& Get() const {
    static const A nothing{};
    for (const Action& action : actions) {
      if (const A* found = std::get_if<A>(&action)) return *found;
    }
    ADD_FAILURE() << "no such action";
    return nothing;
  }
  void StartWorker(Incarnation id, Duration grace = seconds(5)) {
    Do(StartAsked{Slot(static_cast<uint32_t>(id.value)), id, grace, "/log", "/steps"});
    EXPECT_EQ(Count<LaunchWorker>(), 1);
    Do(WorkerStarted{id, 100 + static_cast<int32_t>(id.value)});
  }
  void Join(Incarnation id, int32_t pid) { Do(JoinAsked{9, pid, kProtocolVersion, id, "0.1.0"}); }
  static WorkerEnded Ended(Incarnation id, ProcessEnd end) {
    WorkerEnded ended;
    ended.worker = id;
    ended.started = end;
    return ended;
  }

  Time now{1'000'000'000};
  Time wake_at = kNever;
  KeeperCore core{Incarnation(7), 42};
  std::vector<Action> actions;
};

TEST_F(KeeperScript, Begin_StartsAnAgentAndTellsItHello) {
  Do(Begin{});
  EXPECT_EQ(Count<StartAgent>(), 1);
  EXPECT_EQ(Get<TellHello>().hello.keeper, Incarnation(7));
  EXPECT_EQ(Get<TellHello>().hello.keeper_pid, 42);
  EXPECT_EQ(Get<TellHello>().hello.agent_starts, 1u);
}

TEST_F(KeeperScript, AgentDies_NextOneHearsOfEveryWorkerAndTheNotes) {
  Do(Begin{});
  StartWorker(kOne);
  Join(kOne, 500);
  StartWorker(kTwo);
  Do(Ended(kTwo, {3, 0}));
  Do(RememberNotes{"notes"});
  Do(AgentEnded{{0, SIGKILL}, ""});
  EXPECT_EQ(Count<StartAgent>(), 1);
  EXPECT_EQ(Get<TellHello>().hello.agent_starts, 2u);
  EXPECT_EQ(Get<TellHello>().hello.notes, "notes");
  EXPECT_THAT(Get<TellHello>().hello.workers, testing::ElementsAre(kOne, kTwo));
  ASSERT_EQ(Count<TellWorker>(), 2);
  const WorkerRecord& first = Get<TellWorker>().record;
  EXPECT_TRUE(first.joined);
  EXPECT_EQ(first.pid, 500);
}

TEST_F(KeeperScript, AgentDiesAgainAndAgain_PausesGrowToTheirLimit) {
  Do(Begin{});
  Do(AgentEnded{});
  EXPECT_EQ(Count<StartAgent>(), 1);  // at once
  for (Duration pause : {milliseconds(50), milliseconds(100), milliseconds(200), milliseconds(400), milliseconds(800),
                         milliseconds(1600), milliseconds(2000), milliseconds(2000)}) {
    Do(AgentEnded{});
    EXPECT_EQ(Count<StartAgent>(), 0);
    EXPECT_EQ(wake_at, now + pause);
    Pass(pause - Duration(1));
    EXPECT_EQ(Count<StartAgent>(), 0);
    Pass(Duration(1));
    EXPECT_EQ(Count<StartAgent>(), 1);
  }
  now = now + seconds(11);  // this one has lived
  Do(AgentEnded{});
  EXPECT_EQ(Count<StartAgent>(), 1);
}

TEST_F(KeeperScript, FirstAgentCannotRun_KeeperEndsWithTheReason) {
  Do(Begin{});
  Do(AgentEnded{{}, "cannot execute 'x'"});
  EXPECT_EQ(Get<EndKeeper>().status, 1);
  EXPECT_THAT(Get<EndKeeper>().reason, testing::HasSubstr("cannot execute 'x'"));
}

TEST_F(KeeperScript, LaterAgentCannotRun_IsTriedAgain) {
  Do(Begin{});
  Do(AgentEnded{});
  Do(AgentEnded{{}, "cannot execute 'x'"});
  EXPECT_EQ(Count<EndKeeper>(), 0);
  Pass(milliseconds(50));
  EXPECT_EQ(Count<StartAgent>(), 1);
}

TEST_F(KeeperScript, StartRepeated_StartsOnce) {
  StartWorker(kOne);
  Do(StartAsked{Slot(1), kOne, {}, "/log", "/steps"});
  EXPECT_EQ(Count<LaunchWorker>(), 0);
}

TEST_F(KeeperScript, Stop_IsTermThenKillAfterTheGrace) {
  StartWorker(kOne);
  Do(StopWorker{kOne, seconds(3)});
  EXPECT_EQ(Count<TermWorker>(), 1);
  EXPECT_EQ(wake_at, now + seconds(3));
  Do(StopWorker{kOne, seconds(3)});
  EXPECT_EQ(Count<TermWorker>(), 0);
  Pass(seconds(3));
  EXPECT_EQ(Count<KillWorker>(), 1);
  Do(Ended(kOne, {0, SIGKILL}));
  EXPECT_TRUE(Get<TellWorker>().record.ended);
  EXPECT_TRUE(Get<TellWorker>().record.exit.stopped);
  EXPECT_EQ(wake_at, kNever);
}

TEST_F(KeeperScript, StopWithoutGrace_KillsAtOnceAlsoWhenStopping) {
  StartWorker(kOne);
  Do(StopWorker{kOne, seconds(60)});
  Do(StopWorker{kOne, Duration(0)});
  EXPECT_EQ(Count<TermWorker>(), 0);
  EXPECT_EQ(Count<KillWorker>(), 1);
}

TEST_F(KeeperScript, WorkerThatKillDoesNotEnd_ItsReaperIsKilledThenItIsGivenUp) {
  Do(Begin{});
  StartWorker(kOne);
  Do(StopWorker{kOne, Duration(0)});
  Pass(seconds(10));
  EXPECT_EQ(Count<KillReaper>(), 1);
  Pass(seconds(10));
  EXPECT_EQ(Count<KillReaper>(), 0);
  EXPECT_EQ(wake_at, kNever);  // nothing more to do: no spinning
  Do(EndAsked{SIGTERM});
  EXPECT_EQ(Count<LeaveAgent>(), 1);  // waiting for it once more would help nobody
  Do(AgentEnded{});
  EXPECT_THAT(Get<EndKeeper>().reason, testing::HasSubstr("not even by SIGKILL"));
}

TEST_F(KeeperScript, Join_IsAdmittedOnceWithTheRightProtocol) {
  StartWorker(kOne);
  Do(JoinAsked{9, 500, kProtocolVersion + 1, kOne, "9.9.9"});
  EXPECT_THAT(Get<RefuseJoin>().text, testing::HasSubstr("9.9.9"));
  Do(JoinAsked{9, 500, kProtocolVersion, kTwo, "0.1.0"});
  EXPECT_THAT(Get<RefuseJoin>().text, testing::HasSubstr("no worker 0000000000000002"));
  Join(kOne, 500);
  EXPECT_EQ(Get<Admit>().connection, 9u);
  EXPECT_EQ(Get<TellWorker>().record.pid, 500);
  Join(kOne, 501);
  EXPECT_THAT(Get<RefuseJoin>().text, testing::HasSubstr("already joined, as process 500"));
}

TEST_F(KeeperScript, JoinOfAStoppingWorker_IsRefused) {
  StartWorker(kOne);
  Do(StopWorker{kOne, seconds(5)});
  Join(kOne, 500);
  EXPECT_EQ(Count<RefuseJoin>(), 1);
}

TEST_F(KeeperScript, JoinedBeforeItsStartIsKnown_KeepsThePidThatJoined) {
  Do(StartAsked{Slot(0), kOne, {}, "/log", "/steps"});
  Join(kOne, 500);
  Do(WorkerStarted{kOne, 101});
  EXPECT_EQ(Get<TellWorker>().record.pid, 500);
}

TEST_F(KeeperScript, JoinedProcessDies_WrapperMayBringTheStatus) {
  StartWorker(kOne);
  Join(kOne, 500);
  Do(JoinedEnded{kOne});
  EXPECT_EQ(Count<KillWorker>(), 0);
  Do(Ended(kOne, {7, 0}));
  EXPECT_EQ(Get<TellWorker>().record.exit.what, "exit status 7");
  EXPECT_FALSE(Get<TellWorker>().record.exit.stopped);
}

TEST_F(KeeperScript, JoinedProcessDiesAndWrapperStays_AllIsKilledAndNoFalseStatusTold) {
  StartWorker(kOne);
  Join(kOne, 500);
  Do(JoinedEnded{kOne});
  Pass(milliseconds(250));
  EXPECT_EQ(Count<KillWorker>(), 1);
  WorkerEnded ended = Ended(kOne, {0, SIGKILL});
  ended.started_was_killed = true;
  Do(ended);
  EXPECT_THAT(Get<TellWorker>().record.exit.what, testing::HasSubstr("its exit status went to its parent"));
  EXPECT_EQ(Get<TellWorker>().record.exit.signal, 0);
  EXPECT_FALSE(Get<TellWorker>().record.exit.stopped);
}

TEST_F(KeeperScript, JoinedProcessDiesAndItsEndIsTold_NobodyWaitsForTheWrapper) {
  StartWorker(kOne);
  Join(kOne, 500);
  Do(JoinedEnded{kOne, true});
  EXPECT_EQ(Count<KillWorker>(), 1);
}

TEST_F(KeeperScript, JoinedProcessesEndWasSeen_ItSpeaksForTheWorker) {
  StartWorker(kOne);
  Join(kOne, 500);
  Do(JoinedEnded{kOne});
  WorkerEnded ended = Ended(kOne, {0, SIGKILL});
  ended.started_was_killed = true;
  ended.joined = ProcessEnd{0, SIGSEGV};
  Do(ended);
  EXPECT_EQ(Get<TellWorker>().record.exit.what, "killed by SIGSEGV");
}

TEST_F(KeeperScript, WorkerEndsTwice_IsToldOnce) {
  StartWorker(kOne);
  Do(Ended(kOne, {3, 0}));
  EXPECT_EQ(Count<TellWorker>(), 1);
  Do(Ended(kOne, {4, 0}));
  EXPECT_EQ(Count<TellWorker>(), 0);
}

TEST_F(KeeperScript, Forget_DropsOnlyWhatHasEnded) {
  StartWorker(kOne);
  Do(ForgetWorker{kOne});
  EXPECT_EQ(Count<DropWorker>(), 0);
  Do(Ended(kOne, {0, 0}));
  Do(ForgetWorker{kOne});
  EXPECT_EQ(Count<DropWorker>(), 1);
  Do(ForgetWorker{kOne});
  EXPECT_EQ(Count<DropWorker>(), 0);
}

TEST_F(KeeperScript, Signal_StopsWorkersWithTheirGraceThenTheAgentThenItself) {
  Do(Begin{});
  StartWorker(kOne, seconds(5));
  StartWorker(kTwo, seconds(9));
  Do(EndAsked{SIGTERM});
  EXPECT_EQ(Count<CloseDoor>(), 1);  // with the first word of the end, not with the last
  EXPECT_EQ(Count<TermWorker>(), 2);
  EXPECT_EQ(wake_at, now + seconds(5));
  Do(Ended(kOne, {0, 0}));
  EXPECT_EQ(Count<LeaveAgent>(), 0);
  Do(Ended(kTwo, {0, 0}));
  EXPECT_EQ(Count<LeaveAgent>(), 1);
  Do(AgentEnded{});
  EXPECT_EQ(Count<StartAgent>(), 0);
  EXPECT_EQ(Get<EndKeeper>().status, 128 + SIGTERM);
}

TEST_F(KeeperScript, AgentThatStaysAtTheEnd_IsKilled) {
  Do(Begin{});
  Do(EndAsked{SIGTERM});
  EXPECT_EQ(Count<LeaveAgent>(), 1);
  Pass(seconds(2));
  EXPECT_EQ(Count<KillAgent>(), 1);
}

TEST_F(KeeperScript, SameSignalTwice_KillsAtOnce) {
  Do(Begin{});
  StartWorker(kOne, seconds(60));
  Do(EndAsked{SIGINT});
  Do(EndAsked{SIGTERM});
  Do(EndAsked{0});
  EXPECT_EQ(Count<KillWorker>(), 0);
  Do(EndAsked{SIGINT});
  EXPECT_EQ(Count<KillWorker>(), 1);
  EXPECT_EQ(Count<KillAgent>(), 1);
}

TEST_F(KeeperScript, AfterTheEndWasAsked_NothingIsStarted) {
  Do(Begin{});
  StartWorker(kOne);
  Do(EndAsked{0});
  Do(StartAsked{Slot(3), kTwo, {}, "/log", "/steps"});
  EXPECT_EQ(Count<LaunchWorker>(), 0);
  Do(AgentEnded{});
  EXPECT_EQ(Count<StartAgent>(), 0);
  Do(Ended(kOne, {0, 0}));
  EXPECT_EQ(Get<EndKeeper>().status, 0);
}

TEST_F(KeeperScript, Shutdown_EndsWithItsStatusAndGrace) {
  Do(Begin{});
  StartWorker(kOne, seconds(60));
  Do(ShutdownNode{seconds(1), 1, "refused"});
  EXPECT_EQ(wake_at, now + seconds(1));
  Do(Ended(kOne, {0, 0}));
  Do(AgentEnded{});
  EXPECT_EQ(Get<EndKeeper>().status, 1);
  EXPECT_EQ(Get<EndKeeper>().reason, "refused");
}

TEST_F(KeeperScript, TooManyWorkers_AreRefusedWithAReason) {
  for (uint64_t i = 1; i <= 1024; ++i) StartWorker(Incarnation(i));
  Do(StartAsked{Slot(0), Incarnation(2000), {}, "/log", "/steps"});
  EXPECT_EQ(Count<LaunchWorker>(), 0);
  EXPECT_THAT(Get<TellWorker>().record.exit.what, testing::HasSubstr("already holds 1024 workers"));
}

TEST_F(KeeperScript, LogTail_IsMadePrintable) {
  StartWorker(kOne);
  WorkerEnded ended = Ended(kOne, {1, 0});
  ended.log_tail = "a\xff";
  Do(ended);
  EXPECT_EQ(Get<TellWorker>().record.exit.log_tail, "a?");
}

}  // namespace
}  // namespace locum::keep
