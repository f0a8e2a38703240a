#include "node/node_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "node/node_script.h"

namespace locum::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// ---- Getting to know each other ----------------------------------------------------------------------------

TEST_F(NodeScript, Hello_IntroducesTheNode) {
  Hello();
  const NodeHello& hello = Get<Introduce>().hello;
  EXPECT_EQ(hello.name, "node-a");
  EXPECT_EQ(hello.job, "");
  EXPECT_EQ(hello.keeper, Incarnation(7));
  EXPECT_EQ(hello.agent, Incarnation(8));
  EXPECT_EQ(hello.protocol, kProtocolVersion);
}

TEST_F(NodeScript, WorkersHeldByTheKeeper_AreKnownBeforeACoordinatorIsHeard) {
  Notes notes;
  notes.term = Term(3);
  notes.job = "job";
  notes.cluster = Incarnation(99);
  notes.logs = {{Incarnation(5), 4096, Rank(2)}};
  Hello({Incarnation(5)}, notes);
  EXPECT_EQ(Count<Introduce>(), 0);
  Do(WorkerSeen{Record(Incarnation(5), true)});
  EXPECT_EQ(Count<AskAgain>(), 1);
  EXPECT_EQ(Get<Introduce>().hello.term, Term(3));
  EXPECT_EQ(Get<Introduce>().hello.job, "job");
  Do(CoordinatorUp{MakeWelcome()});
  Order({WorkerOrder{}});
  EXPECT_EQ(Count<StartWorker>(), 0);
  ASSERT_EQ(last.workers.size(), 1u);
  EXPECT_EQ(last.workers[0].log_offset, 4096u);
  WorkerOrder run = To(Incarnation(5), Mode::kRun, 1);
  run.rank = Rank(2);
  Order({run});
  EXPECT_EQ(Get<Relay>().measure, "");  // the same rank goes on
}

TEST_F(NodeScript, CoordinatorUp_IsRememberedForTheNextAgent) {
  Up();
  EXPECT_EQ(Get<Remember>().notes.term, Term(3));
  EXPECT_EQ(Get<Remember>().notes.cluster, Incarnation(99));
  EXPECT_EQ(Get<Introduce>().hello.job, "job");
  EXPECT_EQ(Count<SendReport>(), 1);
}

TEST_F(NodeScript, CoordinatorUpAgain_HearsReadyAndReportAnew) {
  ReadyWorker();
  Do(CoordinatorLost{"cut"});
  Pass(seconds(60));
  EXPECT_EQ(Count<SendReport>(), 0);
  Do(CoordinatorUp{MakeWelcome()});
  EXPECT_EQ(Count<SendReady>(), 1);
  EXPECT_EQ(Count<SendReport>(), 1);
}

TEST_F(NodeScript, LowerTerm_IsNotObeyed) {
  ReadyWorker();
  Welcome old = MakeWelcome();
  old.term = Term(2);
  Do(CoordinatorUp{old});
  NodeOrder order;
  order.term = Term(2);
  order.sequence = 100;
  order.shutdown = true;
  Do(Ordered{order});
  EXPECT_EQ(Count<EndNode>(), 0);
  EXPECT_EQ(Count<SendReport>(), 0);
}

TEST_F(NodeScript, StrangersCluster_IsNotObeyedWhileWorkersLive) {
  ReadyWorker();
  Welcome stranger = MakeWelcome();
  stranger.cluster = Incarnation(1);
  stranger.term = Term(50);
  Do(CoordinatorUp{stranger});
  Order({WorkerOrder{.run = false}});
  EXPECT_EQ(Count<EndWorker>(), 0);
}

// A worker that the old coordinator had asked for was there only after the hello that named no cluster.
TEST_F(NodeScript, StrangersWelcome_NodeIntroducesItselfAnew) {
  ReadyWorker();
  Welcome stranger = MakeWelcome();
  stranger.cluster = Incarnation(1);
  stranger.term = Term(50);
  Do(CoordinatorUp{stranger});
  EXPECT_EQ(Count<IntroduceAnew>(), 1);
}

TEST_F(NodeScript, LateOrder_ChangesNothing) {
  ReadyWorker();
  sequence = 10;
  Order({WorkerOrder{}});
  sequence = 4;
  Order({WorkerOrder{.run = false}});
  EXPECT_EQ(Count<EndWorker>(), 0);
}

// ---- Starting and ending ---------------------------------------------------------------------------------------

TEST_F(NodeScript, EmptySlotThatShouldRun_GetsAWorkerOnce) {
  Up();
  Order({WorkerOrder{}});
  const StartWorker& start = Get<StartWorker>();
  EXPECT_EQ(start.command, std::vector<std::string>{"trainer"});
  EXPECT_EQ(start.job, "job");
  EXPECT_EQ(start.log, "/dir/worker-0-" + ToHex(start.worker.value).substr(0, 8) + ".log");
  EXPECT_EQ(start.grace, Duration(seconds(5)));
  ASSERT_EQ(last.workers.size(), 1u);
  EXPECT_EQ(last.workers[0].life, WorkerLife::kStarting);
  Order({WorkerOrder{}});
  EXPECT_EQ(Count<StartWorker>(), 0);
}

TEST_F(NodeScript, WorkerThatEndedByItself_StaysOnRecordUntilRetired) {
  Incarnation id = ReadyWorker();
  EndOf(id);
  ASSERT_EQ(last.workers.size(), 1u);
  EXPECT_EQ(last.workers[0].life, WorkerLife::kExited);
  EXPECT_EQ(last.workers[0].exit->what, "exit status 3");
  Order({WorkerOrder{}});
  EXPECT_EQ(Count<StartWorker>(), 0);
  WorkerOrder retire;
  retire.retire = id;
  Order({retire});
  EXPECT_EQ(Get<Forget>().worker, id);
  EXPECT_EQ(Count<StartWorker>(), 1);
  EXPECT_NE(Get<StartWorker>().worker, id);
}

TEST_F(NodeScript, RetiredAndNotToRun_SlotStaysEmpty) {
  Incarnation id = ReadyWorker();
  EndOf(id);
  Order({WorkerOrder{.retire = id, .run = false}});
  EXPECT_EQ(Count<Forget>(), 1);
  EXPECT_EQ(Count<StartWorker>(), 0);
  EXPECT_TRUE(last.workers.empty());
}

TEST_F(NodeScript, RetiredWhileAlive_IsEndedFirstThenReplaced) {
  Incarnation id = ReadyWorker();
  Order({WorkerOrder{.retire = id}});
  EXPECT_EQ(Get<EndWorker>().stop.worker, id);
  EXPECT_EQ(Get<EndWorker>().stop.grace, Duration(seconds(5)));
  EXPECT_EQ(Count<StartWorker>(), 0);
  Order({WorkerOrder{.retire = id}});
  EXPECT_EQ(Count<EndWorker>(), 0);
  EndOf(id);
  EXPECT_EQ(Count<Forget>(), 1);
  EXPECT_EQ(Count<StartWorker>(), 1);
  Incarnation next = Get<StartWorker>().worker;
  Do(WorkerSeen{Record(next, false)});
  Order({WorkerOrder{.retire = id}});  // still says so; the new one is another
  EXPECT_EQ(Count<EndWorker>(), 0);
}

TEST_F(NodeScript, EndedByThisNode_SaysWhy) {
  Incarnation id = ReadyWorker();
  Order({WorkerOrder{.run = false}});
  EndOf(id);
  EXPECT_EQ(last.workers[0].exit->what, "exit status 3 (not wanted by the coordinator)");
}

TEST_F(NodeScript, WorkerThatLeaves_HasTimeToEndByItself) {
  Incarnation id = ReadyWorker();
  Do(WorkerLeft{id, "closed"});
  EXPECT_EQ(Count<EndWorker>(), 0);
  Pass(milliseconds(999));
  EXPECT_EQ(Count<EndWorker>(), 0);
  Pass(milliseconds(1));
  EXPECT_EQ(Get<EndWorker>().stop.worker, id);
}

TEST_F(NodeScript, WorkerThatLeavesAndEnds_SpeaksForItself) {
  Incarnation id = ReadyWorker();
  Do(WorkerLeft{id, "closed"});
  EndOf(id);
  EXPECT_EQ(last.workers[0].exit->what, "exit status 3");
}

TEST_F(NodeScript, WorkerThatIsDone_MayLeave) {
  Incarnation id = ReadyWorker();
  WorkerState done;
  done.done = true;
  Do(WorkerSaid{id, done});
  Do(WorkerLeft{id, "closed"});
  Pass(seconds(60));
  EXPECT_EQ(Count<EndWorker>(), 0);
}

TEST_F(NodeScript, RefusedWorker_IsToldAndEndedAfterTheGrace) {
  Incarnation id = ReadyWorker();
  WorkerOrder order = To(id, Mode::kIdle, 0);
  order.refuse = "layout";
  Order({order});
  EXPECT_EQ(Get<Relay>().order.refuse, "layout");
  Pass(seconds(5));
  EXPECT_EQ(Get<EndWorker>().stop.worker, id);
}

TEST_F(NodeScript, Shutdown_IsTheKeepersToDo) {
  ReadyWorker();
  NodeOrder order;
  order.term = Term(3);
  order.sequence = 50;
  order.shutdown = true;
  Do(Ordered{order});
  EXPECT_EQ(Get<EndNode>().shutdown.status, 0);
  EXPECT_EQ(Get<EndNode>().shutdown.grace, Duration(seconds(5)));
  Order({WorkerOrder{}});
  EXPECT_EQ(Count<StartWorker>(), 0);
}

TEST_F(NodeScript, RefusedNode_EndsWithTheReason) {
  Hello();
  Do(CoordinatorRefused{"wrong token"});
  EXPECT_EQ(Get<EndNode>().shutdown.status, 1);
  EXPECT_THAT(Get<EndNode>().shutdown.reason, testing::HasSubstr("wrong token"));
}

// ---- Orders ----------------------------------------------------------------------------------------------------

TEST_F(NodeScript, Order_IsRelayedWhenItChanges) {
  Incarnation id = ReadyWorker();
  Order({To(id, Mode::kFreeze, 1)});
  EXPECT_EQ(Get<Relay>().order.mode, Mode::kFreeze);
  Order({To(id, Mode::kFreeze, 1)});
  EXPECT_EQ(Count<Relay>(), 0);
  Order({To(Incarnation(4711), Mode::kFreeze, 2)});  // meant for another one
  EXPECT_EQ(Count<Relay>(), 0);
  Order({To(id, Mode::kRecover, 1)});
  EXPECT_EQ(Count<Relay>(), 1);
  Order({To(id, Mode::kFreeze, 0)});  // a lower generation
  EXPECT_EQ(Count<Relay>(), 0);
}

TEST_F(NodeScript, OrderBeforeTheJoin_IsRelayedAtTheJoin) {
  Up();
  Order({WorkerOrder{}});
  Incarnation id = Get<StartWorker>().worker;
  Order({To(id, Mode::kIdle, 0)});
  EXPECT_EQ(Count<Relay>(), 0);
  Do(WorkerSeen{Record(id, true)});
  EXPECT_EQ(Get<Relay>().worker, id);
}

TEST_F(NodeScript, RankOfTheFirstGeneration_OwnsItsLogFromTheFirstByte) {
  Incarnation id = ReadyWorker();
  WorkerOrder run = To(id, Mode::kRun, 1);
  run.rank = Rank(3);
  Order({run});
  EXPECT_EQ(Get<Relay>().measure, "");
  EXPECT_EQ(last.workers[0].log_offset, 0u);
  EXPECT_THAT(Get<Remember>().notes.logs, testing::ElementsAre(Notes::Log{id, 0, Rank(3)}));
}

TEST_F(NodeScript, RunWithARank_MeasuresTheLogOncePerRank) {
  Incarnation id = ReadyWorker();
  WorkerOrder run = To(id, Mode::kRun, 2);
  run.rank = Rank(3);
  Order({run});
  EXPECT_EQ(Get<Relay>().measure, "/dir/worker.log");
  Do(LogMeasured{id, 123});
  EXPECT_EQ(last.workers[0].log_offset, 123u);
  EXPECT_THAT(Get<Remember>().notes.logs, testing::ElementsAre(Notes::Log{id, 123, Rank(3)}));
  run.generation = Generation(3);
  Order({run});
  EXPECT_EQ(Get<Relay>().measure, "");
}

TEST_F(NodeScript, StopAt_IsStoredBeforeItIsRelayedAndReportedWithWhatWasReadAfter) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  WorkerOrder run = To(id, Mode::kRun, 1);
  run.stop_at = locum::Step(20);
  Order({run});
  auto kind = [&](auto index) {
    return std::find_if(actions.begin(), actions.end(), [&](const Action& a) { return a.index() == index; });
  };
  auto store = kind(Action(StoreStop{}).index()), relay = kind(Action(Relay{}).index());
  ASSERT_NE(store, actions.end());
  EXPECT_LT(store, relay);
  PageReading page;
  page.worker = id;
  page.stop_at = locum::Step(20);
  page.starting = locum::Step(19);
  Do(StopStored{page});
  EXPECT_EQ(Count<SendReport>(), 1);
  EXPECT_EQ(last.workers[0].state.stop_at, locum::Step(20));
  EXPECT_EQ(last.workers[0].state.starting, locum::Step(19));
  run.stop_at = kNoStop;
  Order({run});
  EXPECT_EQ(Get<StoreStop>().stop_at, kNoStop);
}

// ---- Reports -----------------------------------------------------------------------------------------------------

TEST_F(NodeScript, CommitsInThePage_AreReportedAtTheHeartbeat) {
  Incarnation id = ReadyWorker();
  Page(id, kRunning, Position::kComputing);
  EXPECT_EQ(Count<SendReport>(), 0);
  EXPECT_EQ(wake_at, now + milliseconds(100));
  Pass(milliseconds(100));
  ASSERT_EQ(Count<SendReport>(), 1);
  EXPECT_EQ(last.workers[0].state.word, kRunning);
}

TEST_F(NodeScript, StateThatChanged_IsReportedAtOnce) {
  Incarnation id = ReadyWorker();
  WorkerState state;
  state.broken = Generation(1);
  Do(WorkerSaid{id, state});
  EXPECT_EQ(Count<SendReport>(), 1);
  Do(WorkerSaid{id, state});
  EXPECT_EQ(Count<SendReport>(), 0);
}

TEST_F(NodeScript, TornState_IsReportedTogetherWithItsReason) {
  Incarnation id = ReadyWorker();
  Page(id, Word{Generation(1), locum::Step(5), WordState::kTorn}, Position::kComputing);
  Pass(milliseconds(100));
  EXPECT_EQ(last.workers[0].state.word.state, WordState::kUpdating);
  WorkerState state;
  state.error = "not finite";
  Do(WorkerSaid{id, state});
  EXPECT_EQ(last.workers[0].state.word.state, WordState::kTorn);
  EXPECT_EQ(last.workers[0].state.error, "not finite");
}

TEST_F(NodeScript, StateThatIsFetchedInPlace_IsReportedTornAtOnce) {
  Incarnation id = ReadyWorker();
  Page(id, Word{Generation(1), locum::Step(5), WordState::kTorn}, Position::kParked);
  Pass(milliseconds(100));
  EXPECT_EQ(last.workers[0].state.word.state, WordState::kTorn);
}

TEST_F(NodeScript, WorkerThatDoesNotRun_IsToldFromOneThatWaits) {
  Incarnation id = ReadyWorker();
  WorkerOrder run = To(id, Mode::kRun, 1);
  run.rank = Rank(0);
  Order({run});
  Page(id, kRunning, Position::kInCollective);
  Pass(milliseconds(60));
  EXPECT_EQ(Count<AskAgain>(), 1);
  Answer(id, 0, 0);
  Pass(milliseconds(500));
  EXPECT_EQ(Count<AskAgain>(), 0);
  Pass(milliseconds(500));
  EXPECT_EQ(Count<AskAgain>(), 1);
  Pass(seconds(5) - milliseconds(1));
  EXPECT_FALSE(last.workers[0].mute);
  Pass(milliseconds(1));
  EXPECT_TRUE(last.workers[0].mute);
  Answer(id, 0, 0);
  Pass(milliseconds(1));
  EXPECT_FALSE(last.workers[0].mute);
}

TEST_F(NodeScript, HeartbeatOfNothing_DoesNotSpin) {
  Hello();
  Welcome welcome = MakeWelcome();
  welcome.heartbeat = Duration(0);
  Do(CoordinatorUp{welcome});
  EXPECT_GT(wake_at, now);
}

}  // namespace
}  // namespace locum::node
