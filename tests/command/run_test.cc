// `locum run` with a real trainer, to its end: what is shown, and what is told afterwards.
#include "command.h"

namespace locum::command {
namespace {

using ::testing::Not;

TEST_F(Command, GoodRun_ShowsNoFault) {
  Outcome run = Run({"run", "--nodes", "2", "--spares", "1", "--dir", "d", "--", LOCUM_MINIMAL, "--steps", "20"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Outcome events = Run({"events", "--dir", "d"});
  for (const std::string& text : {run.err, events.out}) {
    EXPECT_THAT(text, HasSubstr("job_finished"));
    EXPECT_THAT(text, Not(HasSubstr("node_stream_lost")));
    EXPECT_THAT(text, Not(HasSubstr("killed by")));
    EXPECT_THAT(text, Not(HasSubstr("since_fault")));
  }
  // The spare's end comes last, and may come when the coordinator has ended.
  EXPECT_THAT(Run({"events", "--dir", "d", "--json"}).out, Not(HasSubstr("since_fault_ns")));
  const Json status = Json::parse(Run({"status", "--dir", "d", "--json"}).out);
  EXPECT_EQ(status["job"]["state"], "finished");
  EXPECT_EQ(status["job"]["spares"], 1);
  EXPECT_EQ(status["nodes"][2]["role"], "spare");
  EXPECT_EQ(Run({"replay", "d"}).status, 0);
  for (const std::vector<std::string>& late : {std::vector<std::string>{"failback", "node-0"}, {"adopt"}}) {
    std::vector<std::string> words = late;
    words.insert(words.end(), {"--dir", "d"});
    const Outcome asked = Run(words);
    EXPECT_EQ(asked.status, 1);
    EXPECT_THAT(asked.err, HasSubstr("has finished; there is nothing to "));
  }
}

TEST_F(Command, OutputOfRankZero_IsPassedFromItsFirstByte) {
  // Two nodes, and each worker's own words: those of rank 0 come, and no others.
  Outcome run = Run({"run", "--nodes", "2", "--dir", "d", "--", "/bin/sh", "-c",
                     "echo before by $LOCUM_WORKER; exec \"$0\" --steps 5", LOCUM_MINIMAL});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json status = Json::parse(Run({"status", "--dir", "d", "--json"}).out);
  const std::string rank_0 = status["ranks"][0]["worker"];
  EXPECT_EQ(run.out.substr(0, run.out.find('\n')), "before by " + rank_0);
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 2) << run.out;
}

TEST_F(Command, CommandAndDirThatAreNoText_JustWork) {
  std::filesystem::copy(LOCUM_MINIMAL, Path("m\xff\xfe"));
  Outcome run = Run({"run", "--dir", "d\xff", "--", "/bin/sh", "-c", "echo \"$1\"; exec \"$0\" --steps 5",
                     Path("m\xff\xfe"), "word \xc3\x28"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("word \xc3\x28\n"));
  EXPECT_THAT(run.out, HasSubstr("final step=5"));
  EXPECT_EQ(Run({"status", "--dir", "d\xff"}).status, 0);
  EXPECT_EQ(Run({"events", "--dir", "d\xff"}).status, 0);
  EXPECT_EQ(Run({"replay", "d\xff"}).status, 0);
}

TEST_F(Command, ClosedStandardDescriptors_DoNoHarm) {
  for (const char* closed : {"1-", "2-", "0-", "0-1-2-"}) {
    Process run(dir_, {"run", "--dir", "d", "--", LOCUM_MINIMAL, "--steps", "5"}, {}, 0, closed);
    const Outcome outcome = run.Wait();
    EXPECT_EQ(outcome.status, 0) << closed << ": " << outcome.err;
    EXPECT_EQ(Json::parse(Run({"status", "--dir", "d", "--json"}).out)["job"]["state"], "finished") << closed;
    Process status(dir_, {"status", "--dir", "d"}, {}, 0, closed);
    EXPECT_EQ(status.Wait().status, 0) << closed;
    std::filesystem::remove_all(Path("d"));
  }
}

TEST_F(Command, OutputThatCannotBeWritten_IsToldOnceAndInTheStatus) {
  const std::vector<std::string> words = {"run", "--dir", "d", "--", LOCUM_MINIMAL, "--steps", "5"};
  const Outcome full = Process(dir_, words, {}, 0, "1f").Wait();
  EXPECT_EQ(full.status, 1);
  const size_t told = full.err.find("cannot write rank 0's output to standard output: No space left on device");
  ASSERT_NE(told, std::string::npos) << full.err;
  EXPECT_EQ(full.err.find("cannot write", told + 1), std::string::npos) << full.err;
  EXPECT_THAT(full.err, HasSubstr("job_finished"));
  std::filesystem::remove_all(Path("d"));
  // Who closes the pipe has had enough.
  const Outcome gone = Process(dir_, words, {}, 0, "1p").Wait();
  EXPECT_EQ(gone.status, 0) << gone.err;
  EXPECT_THAT(gone.err, Not(HasSubstr("cannot write")));
  EXPECT_THAT(gone.err, HasSubstr("job_finished"));
}

TEST_F(Command, ProgramThatLeavesWithoutFinish_IsNamedAsTheCause) {
  const Outcome run = Run({"run", "--dir", "d", "--grace", "1s", "--", LOCUM_LEAVER, "loop"});
  EXPECT_EQ(run.status, 80) << run.err;
  EXPECT_THAT(Run({"status", "--dir", "d"}).out, HasSubstr("exit status 0 without locum_finish"));
}

TEST_F(Command, ReasonOfAFailedUpdate_ReachesHistoryAndStatus) {
  const Outcome run = Run({"run", "--dir", "d", "--grace", "1s", "--", LOCUM_LEAVER, "fail"});
  EXPECT_EQ(run.status, 80) << run.err;
  EXPECT_THAT(run.err, HasSubstr("the moments are not finite"));
  EXPECT_THAT(Run({"events", "--dir", "d"}).out, HasSubstr("the moments are not finite"));
  EXPECT_THAT(Run({"status", "--dir", "d"}).out, HasSubstr("the moments are not finite"));
}

TEST_F(Command, ProgramThatJoinsAndNeverTrains_IsToldSo) {
  const Outcome run = Run({"run", "--dir", "d", "--grace", "1s", "--", LOCUM_LEAVER, "join"});
  EXPECT_THAT(run.err, HasSubstr("it had joined, and never called locum_next_step"));
  std::ofstream(Path("c.toml")) << "[timeouts]\njoin = \"1s\"\ngather = \"1s\"\n";
  const Outcome slow = Run({"run", "--config", "c.toml", "--dir", "e", "--grace", "1s", "--", LOCUM_LEAVER, "sit"});
  EXPECT_THAT(slow.err, HasSubstr("has joined and not called locum_next_step within 1 s (timeouts.join)"));
}

TEST_F(Command, NodeOnTheLoopback_ShowsItsTraffic) {
  Process run(dir_, {"run", "--nodes", "2", "--dir", "d", "--", LOCUM_MINIMAL, "--steps", "1000000", "--step-ms", "1"});
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  int64_t bytes = 0;
  while (bytes == 0 && std::chrono::steady_clock::now() < deadline) {
    const Json status = Json::parse(Run({"status", "--dir", "d", "--json"}).out, nullptr, false);
    if (status.is_object() && !status["nodes"].empty()) bytes = status["nodes"][0]["usage"]["network"];
  }
  EXPECT_GT(bytes, 0);
  run.Kill(SIGTERM);
  EXPECT_EQ(run.Wait().status, 143);
}

TEST_F(Command, StoppedJob_IsToldAsStopped) {
  Process coordinator(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  Address("d");
  coordinator.Kill(SIGTERM);
  coordinator.Wait();
  const Outcome status = Run({"status", "--dir", "d"});
  EXPECT_THAT(status.out, HasSubstr(": stopped by SIGTERM while gathering, step 0"));
  EXPECT_THAT(status.out, HasSubstr("'locum coordinator --dir d' takes the job up again"));
  EXPECT_EQ(Json::parse(Run({"status", "--dir", "d", "--json"}).out)["job"]["reason"], "stopped by SIGTERM");
}

}  // namespace
}  // namespace locum::command
