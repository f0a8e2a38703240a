// Bad use, and what processes of the command leave behind.
#include "command.h"

namespace locum::command {
namespace {

TEST_F(Command, Help_NamesSubcommandsAndExitStatus) {
  Outcome help = Run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* word : {"run", "coordinator", "agent", "status", "events", "failback", "replay", "127"}) {
    EXPECT_THAT(help.out, HasSubstr(word));
  }
  EXPECT_THAT(help.out, ::testing::Not(HasSubstr("agentd")));
  EXPECT_EQ(Run({"--version"}).out, "locum 0.1.0\n");
  for (const char* word : {"run", "coordinator", "agent", "status", "events", "failback", "replay"}) {
    EXPECT_EQ(Run({word, "--help"}).status, 0);
  }
}

TEST_F(Command, BadFlags_AreUsageErrors) {
  Expect({}, 2, "A subcommand is required");
  Expect({"frobnicate"}, 2, "there is no subcommand 'frobnicate'");
  Expect({"run"}, 2, "no command");
  Expect({"run", "--nodes", "2", "sleep", "1"}, 2, "put -- in front of the command");
  Expect({"run", "--nodes", "many", "--", "true"}, 2, "--nodes: 'many' is not an integer");
  Expect({"run", "--nodes", "0", "--", "true"}, 2, "--nodes: 0 is not between 1 and 4096");
  Expect({"run", "--grace", "5", "--", "true"}, 2, "--grace: '5' is not a duration");
  Expect({"run", "--grace", "2m", "--", "true"}, 2, "set timeouts.finish to 2m or more, or lower timeouts.grace");
  Expect({"agent"}, 2, "--coordinator HOST:PORT is missing");
  Expect({"status", "--coordinator", "abc"}, 2, "--coordinator: 'abc' is not HOST:PORT");
  Expect({"status", "--coordinator", "127.0.0.1:999999"}, 2, "is not HOST:PORT");
  Expect({"agent", "--coordinator", "nowhere"}, 2, "is not HOST:PORT");
  Expect({"agent", "--coordinator", "127.0.0.1:1"}, 2, "no token");
  Expect({"coordinator"}, 2, "no command and no --dir");
  Expect({"coordinator", "--dir", "d"}, 2, "holds no job to take up");
  Expect({"coordinator", "--dir", "d", "--listen", "localhost:1", "--", "true"}, 2, "is not a numeric address");
  Expect({"coordinator", "--dir", "d", "--interface", "nope0", "--", "true"}, 2, "there is no interface 'nope0'");
  Expect({"status"}, 2, "no job was run from here");
  Expect({"status", "--dir", "absent"}, 2, "absent does not exist");
  Expect({"failback"}, 2, "NODE is required");
  EXPECT_FALSE(std::filesystem::exists(Path(".locum")));
}

TEST_F(Command, FlagsThatCannotBeTaken_AreNamedWithWhatToDo) {
  Expect({"run", "--frob", "--", "true"}, 2, "locum run has no flag --frob; see 'locum run --help'");
  Expect({"run", "--nodse=3", "--", "true"}, 2, "locum run has no flag --nodse (did you mean --nodes?)");
  Expect({"--frob"}, 2, "locum has no flag --frob; see 'locum --help'");
  Expect({"status", "-x"}, 2, "locum status has no flag -x");
  Expect({"run", "--nodes", "2", "--nodes", "3", "--", "true"}, 2, "--nodes is given 2 times; give it once");
  Expect({"run", "--nodes=2", "--nodes=2", "--nodes=2", "--", "true"}, 2, "--nodes is given 3 times; give it once");
  Expect({"run", "--nodes"}, 2, "--nodes needs a value: --nodes N");
  Expect({"status", "--dir", "d", "--coordinator", "a:1"}, 2, "--dir and --coordinator exclude each other");
  Expect({"failback", "a", "b"}, 2, "locum failback does not take the word 'b'; see 'locum failback --help'");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", "--dir", "", "--", "true"},
                                                {"run", "--dir=", "--", "true"},
                                                {"status", "--dir", ""},
                                                {"agent", "--dir", ""},
                                                {"coordinator", "--dir", "", "--", "true"}}) {
    Expect(words, 2, "--dir: is empty; give a value, or leave it out");
  }
  Expect({"run", "--config", "", "--", "true"}, 2, "--config: is empty");
  Expect({"replay", ""}, 2, "an empty word");
  EXPECT_TRUE(Left().empty());
}

TEST_F(Command, BadConfig_NamesFileLineAndReason) {
  std::ofstream(Path("c.toml")) << "[job]\nnodes = 2\nspare = 1\n";
  Expect({"run", "--config", "c.toml", "--", "true"}, 2,
         "c.toml:3: unknown key 'job.spare'; did you mean 'job.spares'?");
  std::ofstream(Path("c.toml")) << "[job]\ncommand = [1]\n";
  Expect({"run", "--config", "c.toml"}, 2, "c.toml:2: job.command: must be a list of texts");
  std::ofstream(Path("c.toml")) << "[timeouts]\nheartbeat = \"2s\"\n";
  Expect({"run", "--config", "c.toml", "--", "true"}, 2, "c.toml:2: timeouts.heartbeat: ");
  Expect({"run", "--config", "absent.toml", "--", "true"}, 2, "cannot open the config file absent.toml");
}

TEST_F(Command, ConfigOfARun_IsCheckedAsACoordinatorDoes) {
  std::ofstream(Path("c.toml")) << "[coordinator]\nlisten = \"nowhere:5\"\n";
  for (const char* word : {"run", "coordinator"}) {
    Expect({word, "--config", "c.toml", "--dir", "d", "--", "true"}, 2, "is not a numeric address");
  }
}

TEST_F(Command, LowLimitOfOpenFiles_IsToldAtTheStart) {
  // A coordinator raises its own as far as it may.
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "--", "true"}, {"agent", "--coordinator", "127.0.0.1:1"}}) {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit low{20, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
    Expect(words, 2, "the limit of open files is 20, and at least ");
    ::setrlimit(RLIMIT_NOFILE, &before);
  }
  EXPECT_TRUE(Left().empty());
}

TEST_F(Command, AgentThatCannotBe_IsToldBeforeItConnects) {
  std::filesystem::create_directory(Path("x"));
  std::ofstream(Path("x/foreign")) << "x";
  Expect({"agent", "--coordinator", "127.0.0.1:1", "--dir", "x"}, 2, "holds files that are not Locum's (foreign)",
         {"LOCUM_TOKEN=x"});
  const Outcome name = Run({"agent", "--coordinator", "127.0.0.1:1", "--name", std::string(5000, 'n')});
  EXPECT_EQ(name.status, 2);
  EXPECT_THAT(name.err, HasSubstr("nnn...' is not a node name"));
  EXPECT_LT(name.err.size(), 300u);
}

TEST_F(Command, NegativeNumberForTheExample_IsRefused) {
  EXPECT_EQ(WEXITSTATUS(std::system(LOCUM_MINIMAL " --steps -5 2>/dev/null")), 2);
}

TEST_F(Command, CommandThatCannotRun_IsToldBeforeAnythingStarts) {
  Expect({"run", "--", "no-such-command"}, 127, "'no-such-command' was not found in PATH");
  Expect({"run", "--", "./absent"}, 127, "'./absent' does not exist");
  std::ofstream(Path("text")) << "x";
  Expect({"run", "--", "./text"}, 126, "'./text' is not an executable file");
  EXPECT_FALSE(std::filesystem::exists(Path(".locum")));
}

TEST_F(Command, Coordinator_HoldsItsDirAndPortAndIsTakenUp) {
  Process first(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  std::string address = Address("d");
  Expect({"coordinator", "--dir", "d"}, 2, "is in use by a running coordinator");
  Expect({"run", "--dir", "d", "--", "true"}, 2, "is in use by a running coordinator");
  Expect({"coordinator", "--dir", "e", "--listen", address, "--", "true"}, 2, "the port is in use");
  EXPECT_FALSE(std::filesystem::exists(Path("e/coordinator.json")));

  Outcome status = Run({"status", "--dir", "d", "--json"});
  EXPECT_EQ(status.status, 0) << status.err;
  Json json = Json::parse(status.out);
  EXPECT_EQ(json["job"]["state"], "gathering");
  EXPECT_EQ(json["job"]["term"], 1);
  EXPECT_EQ(Run({"status", "--coordinator", address, "--token-file", "d/token"}).status, 0);
  Expect({"failback", "nobody", "--dir", "d"}, 1, "there is no node 'nobody'");

  first.Kill(SIGTERM);
  EXPECT_EQ(first.Wait().status, 143);
  EXPECT_FALSE(std::filesystem::exists(Path("d/coordinator.json")));
  status = Run({"status", "--dir", "d", "--json"});
  EXPECT_EQ(Json::parse(status.out)["job"]["coordinator"], "not running");
  Expect({"failback", "nobody", "--dir", "d"}, 1, "no coordinator runs");
  Expect({"coordinator", "--dir", "d", "--", "other"}, 2, "with another command");
  Expect({"run", "--dir", "d", "--", "sleep", "1"}, 2, "holds the unfinished job");

  Process second(dir_, {"coordinator", "--dir", "d"});
  Address("d");
  EXPECT_EQ(Json::parse(Run({"status", "--dir", "d", "--json"}).out)["job"]["term"], 2);
  second.Kill(SIGINT);
  EXPECT_EQ(second.Wait().status, 130);
  Outcome events = Run({"events", "--dir", "d", "--json"});
  EXPECT_THAT(events.out, HasSubstr("\"name\":\"coordinator_started\""));
  EXPECT_EQ(Run({"replay", "d"}).status, 0);
}

TEST_F(Command, KilledCoordinator_IsStillReadFromItsDir) {
  Process first(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  Address("d");
  // It listens a moment before the job is on disk.
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (ReadAll(Path("d/events.jsonl")).empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  first.Kill(SIGKILL);
  first.Wait();
  Outcome status = Run({"status", "--dir", "d", "--json"});
  EXPECT_EQ(status.status, 0) << status.err;
  EXPECT_EQ(Json::parse(status.out)["job"]["coordinator"], "not running");
  Process second(dir_, {"coordinator", "--dir", "d"});
  second.Kill(SIGTERM);
  EXPECT_EQ(second.Wait().status, 143);
}

TEST_F(Command, WrongToken_IsAnErrorAtOnce) {
  Process coordinator(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  std::string address = Address("d");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"agent", "--coordinator", address, "--dir", "n"},
        {"status", "--coordinator", address},
        {"events", "--coordinator", address},
        {"failback", "x", "--coordinator", address}}) {
    Outcome outcome = Run(words, {"LOCUM_TOKEN=guess"});
    EXPECT_EQ(outcome.status, 1) << words[0];
    EXPECT_THAT(outcome.err, HasSubstr("refuses this token")) << words[0];
  }
  coordinator.Kill(SIGTERM);
  coordinator.Wait();
}

TEST_F(Command, UnreachableCoordinator_IsTriedForAWhile) {
  Outcome outcome = Run({"agent", "--coordinator", "127.0.0.1:1", "--connect-timeout", "300ms"}, {"LOCUM_TOKEN=x"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot reach the coordinator at 127.0.0.1:1"));
  EXPECT_THAT(outcome.err, HasSubstr("trying again"));
  EXPECT_THAT(outcome.err, HasSubstr("given up (--connect-timeout)"));
}

TEST_F(Command, RunOfACommandThatFailsAtOnce_SaysSoAndLeavesNothing) {
  Outcome outcome = Run({"run", "--nodes", "2", "--dir", Path("d"), "--grace", "1s", "--", "false"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("job_failed"));
  ExpectNothingRuns(dir_);
  EXPECT_FALSE(std::filesystem::exists(Path("d/coordinator.json")));
  Expect({"run", "--dir", "d", "--", "true"}, 2, "has failed; it can be read");
  Expect({"coordinator", "--dir", "d"}, 2, "has failed; it can be read");
  EXPECT_EQ(Json::parse(Run({"status", "--dir", "d", "--json"}).out)["job"]["state"], "failed");
}

TEST_F(Command, InterruptedRun_EndsEverything) {
  for (int signal : {SIGINT, SIGTERM}) {
    std::string name = "d" + std::to_string(signal);
    Process run(dir_, {"run", "--nodes", "2", "--dir", Path(name), "--grace", "1s", "--", "sleep", "1000"});
    Address(name);
    run.Kill(signal);
    EXPECT_EQ(run.Wait().status, 128 + signal);
    ExpectNothingRuns(dir_);
    EXPECT_FALSE(std::filesystem::exists(Path(name + "/coordinator.json")));
    if (!std::filesystem::exists(Path(name))) continue;  // it was interrupted before the start had succeeded
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Path(name))) {
      EXPECT_FALSE(entry.is_socket()) << entry.path();
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
  }
}

}  // namespace
}  // namespace locum::command
