// The keeper, its reapers and the processes below them: who ends, and that nothing stays.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "tests/node/node_fixture.h"

namespace locum::test {
namespace {

class KeeperProcess : public NodeFixture {};

bool Exited(const WorkerReport& w) { return w.life == WorkerLife::kExited; }
bool Ready(const WorkerReport& w) { return w.life == WorkerLife::kReady; }

TEST_F(KeeperProcess, WorkerExit_IsReportedWithStatusAndLogTail) {
  StartNode({WorkerProgram(), "print", "last words", "exit", "3"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  WorkerReport worker = coordinator_->Worker(0);
  EXPECT_EQ(worker.exit->status, 3);
  EXPECT_EQ(worker.exit->what, "exit status 3");
  EXPECT_FALSE(worker.exit->stopped);
  EXPECT_EQ(worker.exit->log_tail, "last words\n");
  std::string hex = ToHex(worker.worker.value).substr(0, 8);
  EXPECT_EQ(worker.log, dir_ + "/worker-0-" + hex + ".log");
  EXPECT_EQ(worker.step_log, dir_ + "/worker-0-" + hex + ".steps");
}

TEST_F(KeeperProcess, WorkerKilledBySignal_IsReportedByName) {
  StartNode({WorkerProgram(), "raise", "11"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_EQ(coordinator_->Worker(0).exit->signal, SIGSEGV);
  EXPECT_EQ(coordinator_->Worker(0).exit->what, "killed by SIGSEGV");
}

TEST_F(KeeperProcess, CommandThatDoesNotExist_IsReportedWithErrorText) {
  StartNode({"no-such-program-here", "x"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_EQ(coordinator_->Worker(0).exit->what, "cannot execute 'no-such-program-here': No such file or directory");
  EXPECT_EQ(coordinator_->Worker(0).exit->status, 127);
}

TEST_F(KeeperProcess, CommandThatIsNoProgram_IsReportedWithErrorText) {
  std::ofstream(root_ + "/data") << "x";
  StartNode({root_ + "/data"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_EQ(coordinator_->Worker(0).exit->what, "cannot execute '" + root_ + "/data': Permission denied");
  EXPECT_EQ(coordinator_->Worker(0).exit->status, 126);
}

TEST_F(KeeperProcess, WorkerThatExits_TakesItsOrphansAlong) {
  StartNode({WorkerProgram(), "child", "orphan", "orphan", "join", "serve"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  ASSERT_TRUE(AwaitMarked(2 + 1 + 1 + 3));  // keeper and agent, reaper, worker, its child and two orphans
  ::kill(coordinator_->Worker(0).pid, SIGKILL);
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_EQ(coordinator_->Worker(0).exit->what, "killed by SIGKILL");
  EXPECT_FALSE(coordinator_->Worker(0).exit->stopped);
  EXPECT_LE(Marked().size(), 3u);  // known as ended only when all of it has; the reaper may just be leaving
  EXPECT_TRUE(AwaitMarked(2));
}

TEST_F(KeeperProcess, ReaperKilled_WorkerAndOrphansAreEndedByTheKeeper) {
  StartNode({"/bin/sh", "-c", WorkerProgram() + " orphan child join serve; true"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  ASSERT_TRUE(AwaitMarked(2 + 1 + 2 + 2));
  pid_t shell = ParentOf(coordinator_->Worker(0).pid);
  ::kill(ParentOf(shell), SIGKILL);
  ASSERT_TRUE(AwaitWorker(0, Exited));
  EXPECT_NE(coordinator_->Worker(0).exit->what.find("its reaper was killed"), std::string::npos);
  EXPECT_TRUE(AwaitMarked(2));
}

TEST_F(KeeperProcess, KeeperKilled_NothingSurvives) {
  StartNode({WorkerProgram(), "ignore-term", "child", "orphan", "join", "sleep"});
  Order({RunSlot(0), RunSlot(1)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  ASSERT_TRUE(AwaitWorker(1, Ready));
  ASSERT_TRUE(std::filesystem::exists(dir_ + "/keeper.sock"));
  ::kill(keeper_, SIGKILL);
  EXPECT_EQ(AwaitEnd(keeper_), 1000 + SIGKILL);
  EXPECT_TRUE(AwaitNothingLeft());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/keeper.sock"));
}

TEST_F(KeeperProcess, KeeperKilled_NextOneOnTheDirectoryWaitsForItsReapersAndStarts) {
  StartNode({WorkerProgram(), "ignore-term", "orphan", "join", "sleep"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  pid_t reaper = ParentOf(coordinator_->Worker(0).pid);
  ::kill(reaper, SIGSTOP);  // it lives on for a while, as when much is to be ended
  ::kill(keeper_, SIGKILL);
  AwaitEnd(keeper_);
  pid_t next = StartKeeper();
  EXPECT_FALSE(coordinator_->AwaitAgent(std::chrono::milliseconds(200)));
  ::kill(reaper, SIGCONT);
  EXPECT_TRUE(coordinator_->AwaitAgent(kPatience));
  EXPECT_EQ(coordinator_->hello().keeper_pid, next);
}

TEST_F(KeeperProcess, SecondKeeperOnADirectory_IsRefusedWithTheFirstOnesPid) {
  StartNode({WorkerProgram(), "sleep"});
  pid_t first = keeper_;
  EXPECT_EQ(AwaitEnd(StartKeeper()), 1);
  EXPECT_NE(Errors().find("is in use by a running agent (process " + std::to_string(first) + ")"), std::string::npos)
      << Errors();
  ::kill(first, SIGTERM);
  EXPECT_EQ(AwaitEnd(first), 128 + SIGTERM);
}

TEST_F(KeeperProcess, DirectoryThatCannotBeMade_IsAClearError) {
  std::ofstream(root_ + "/file") << "x";
  EXPECT_EQ(AwaitEnd(StartKeeper({}, root_ + "/file/below")), 1);
  EXPECT_NE(Errors().find("'" + root_ + "/file/below' cannot be made"), std::string::npos) << Errors();
}

TEST_F(KeeperProcess, DirectoryThatCannotBeWritten_IsAClearError) {
  EXPECT_EQ(AwaitEnd(StartKeeper({}, "/proc/self")), 1);
  EXPECT_NE(Errors().find("cannot be written"), std::string::npos) << Errors();
}

TEST_F(KeeperProcess, LongDirectory_WorkersJoin) {
  dir_ = root_ + "/" + std::string(200, 'd');
  StartNode({WorkerProgram(), "join", "serve"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  EXPECT_TRUE(AwaitLog(coordinator_->Worker(0).log, "joined job as node-a at 127.0.0.1 with secret"));
}

TEST_F(KeeperProcess, SigtermToKeeper_StopsWorkersWithTermAndRemovesTheSocket) {
  StartNode({WorkerProgram(), "tell-term", "orphan", "join", "sleep"});
  Order({RunSlot(0), RunSlot(1)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  ASSERT_TRUE(AwaitWorker(1, Ready));
  ASSERT_TRUE(std::filesystem::exists(dir_ + "/keeper.sock"));
  std::string log = coordinator_->Worker(0).log;
  ::kill(keeper_, SIGTERM);
  EXPECT_EQ(AwaitEnd(keeper_), 128 + SIGTERM);
  EXPECT_EQ(Marked().size(), 0u);
  EXPECT_NE(Read(log).find("term"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/keeper.sock"));
}

TEST_F(KeeperProcess, WorkerDeafToSigterm_IsKilledAfterTheGrace) {
  StartNode({WorkerProgram(), "ignore-term", "join", "sleep"}, std::chrono::milliseconds(200));
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  ::kill(keeper_, SIGINT);
  EXPECT_EQ(AwaitEnd(keeper_), 128 + SIGINT);
  EXPECT_EQ(Marked().size(), 0u);
}

TEST_F(KeeperProcess, SecondSignalToKeeper_KillsAtOnce) {
  StartNode({WorkerProgram(), "ignore-term", "join", "sleep"}, std::chrono::hours(1));
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  ::kill(keeper_, SIGINT);
  ::kill(keeper_, SIGTERM);  // as when a parent passes the terminal's Ctrl-C on: not a second one
  ASSERT_TRUE(AwaitLog(dir_ + "/agent.log", "node_ending"));
  ::usleep(50'000);
  ASSERT_EQ(::kill(keeper_, 0), 0);
  ::kill(keeper_, SIGINT);
  EXPECT_EQ(AwaitEnd(keeper_), 128 + SIGINT);
  EXPECT_EQ(Marked().size(), 0u);
}

TEST_F(KeeperProcess, ParentGone_KeeperEndsLikeOnSigterm) {
  pid_t parent = ::fork();
  if (parent == 0) {
    while (true) ::pause();
  }
  StartKeeper({std::to_string(parent)});
  ASSERT_TRUE(coordinator_->AwaitAgent(kPatience));
  coordinator_->Send(LinkUp{MakeWelcome({WorkerProgram(), "tell-term", "join", "sleep"}, std::chrono::seconds(20))});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  std::string log = coordinator_->Worker(0).log;
  ::kill(parent, SIGKILL);
  EXPECT_EQ(AwaitEnd(keeper_), 0);
  ::waitpid(parent, nullptr, 0);
  EXPECT_EQ(Marked().size(), 0u);
  EXPECT_NE(Read(log).find("term"), std::string::npos);
}

TEST_F(KeeperProcess, AgentThatCannotBeExecuted_EndsTheKeeperWithTheReason) {
  ::setenv("NODE_TEST_AGENT", "/no/such/agent", 1);
  pid_t keeper = StartKeeper();
  ::unsetenv("NODE_TEST_AGENT");
  EXPECT_EQ(AwaitEnd(keeper), 1);
  EXPECT_NE(Errors().find("cannot execute '/no/such/agent': No such file or directory"), std::string::npos) << Errors();
}

TEST_F(KeeperProcess, AgentThatAlwaysDies_IsStartedAgainWithPauses) {
  ::setenv("NODE_TEST_AGENT", "/bin/false", 1);
  pid_t keeper = StartKeeper();
  ::unsetenv("NODE_TEST_AGENT");
  auto deaths = [&] {
    std::string log = Read(dir_ + "/agent.log");
    size_t count = 0;
    for (size_t at = 0; (at = log.find("agent_ended exit status 1", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  ASSERT_TRUE(AwaitTrue([&] { return deaths() >= 5; }));
  EXPECT_LT(deaths(), 20u);
  ::kill(keeper, SIGTERM);
  EXPECT_EQ(AwaitEnd(keeper), 128 + SIGTERM);
}

TEST_F(KeeperProcess, WorkersInheritNothingOfTheKeeper) {
  StartNode(
      {"/bin/sh", "-c", "for fd in /proc/$$/fd/*; do readlink $fd; done; exec " + WorkerProgram() + " join serve"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Ready));
  std::string log = Read(coordinator_->Worker(0).log);
  EXPECT_EQ(log.find("keeper.lock"), std::string::npos) << log;
  EXPECT_EQ(log.find("socket:"), std::string::npos) << log;
  EXPECT_EQ(log.find("pidfd"), std::string::npos) << log;
  std::string reaper = "/proc/" + std::to_string(ParentOf(coordinator_->Worker(0).pid)) + "/fd";
  size_t descriptors = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(reaper)) ++descriptors;
  EXPECT_EQ(descriptors, 3u + 4u);  // standard ones, control, keeper's pidfd, lock, signalfd
}

TEST_F(KeeperProcess, WorkersSignals_AreAsTheKeeperFoundThem) {
  StartNode({"/bin/cat", "/proc/self/status"});
  Order({RunSlot(0)});
  ASSERT_TRUE(AwaitWorker(0, Exited));
  std::string log = Read(coordinator_->Worker(0).log);
  EXPECT_NE(log.find("SigBlk:\t0000000000000000"), std::string::npos) << log;
  EXPECT_NE(log.find("SigIgn:\t0000000000000000"), std::string::npos) << log;
}

TEST_F(KeeperProcess, EndedAtAnyMoment_NothingSurvivesAndTheDirectoryIsFree) {
  Random random(20240607);
  for (int round = 0; round < 25; ++round) {
    pid_t keeper = StartKeeper();
    const int signals[] = {SIGKILL, SIGTERM, SIGINT};
    int signal = signals[random.Below(3)];
    bool to_agent_too = random.OneIn(2);
    if (random.OneIn(4)) {
      ::usleep(static_cast<useconds_t>(random.Below(20'000)));
    } else {
      ASSERT_TRUE(coordinator_->AwaitAgent(kPatience)) << "round " << round;
      coordinator_->Send(LinkUp{MakeWelcome({WorkerProgram(), "child", "orphan", "join", "sleep"}, Duration(0))});
      sequence_ = 0;
      Order({RunSlot(0), RunSlot(1)});
      ::usleep(static_cast<useconds_t>(random.Below(30'000)));
      if (to_agent_too) ::kill(coordinator_->hello().agent_pid, SIGKILL);
    }
    ::kill(keeper, signal);
    ASSERT_NE(AwaitEnd(keeper), -1) << "round " << round;
    ASSERT_TRUE(AwaitNothingLeft()) << "round " << round;
    coordinator_ = nullptr;  // and whatever waits there
    std::filesystem::remove(control_);
    coordinator_ = std::make_unique<FakeCoordinator>(control_);
  }
}

}  // namespace
}  // namespace locum::test
