#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
constexpr auto kLong = std::chrono::seconds(30);

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Outcome {
  int status = -1;
  std::string out, err;
};

// One run of the program in the test's directory.
class Process {
 public:
  Process(const std::string& dir, std::vector<std::string> words, const std::vector<std::string>& environment = {})
      : out_(dir + "/stdout." + std::to_string(++count_)), err_(dir + "/stderr." + std::to_string(count_)) {
    words.insert(words.begin(), "locum");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(::open(out_.c_str(), O_WRONLY | O_CREAT, 0644), 1);
      ::dup2(::open(err_.c_str(), O_WRONLY | O_CREAT, 0644), 2);
      ::unsetenv("LOCUM_TOKEN");
      for (const std::string& variable : environment) ::putenv(const_cast<char*>(variable.c_str()));
      if (::chdir(dir.c_str()) == 0) ::execv(LOCUM_PROGRAM, argv.data());
      ::_exit(99);
    }
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  void Kill(int signal) { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  Outcome Wait() {
    int status = 0;
    auto deadline = std::chrono::steady_clock::now() + kLong;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "does not end: " << ReadAll(err_);
        return {};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ReadAll(out_), ReadAll(err_)};
  }

 private:
  static inline int count_ = 0;
  std::string out_, err_;
  pid_t pid_ = -1;
};

class Command : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(dir_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  Outcome Run(const std::vector<std::string>& words, const std::vector<std::string>& environment = {}) {
    return Process(dir_, words, environment).Wait();
  }
  void Expect(const std::vector<std::string>& words, int status, const std::string& text) {
    Outcome outcome = Run(words);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_EQ(outcome.err.rfind("locum: ", 0), 0u) << outcome.err;
  }
  // Waits for the coordinator of `dir` to listen; its address.
  std::string Address(const std::string& dir) {
    auto deadline = std::chrono::steady_clock::now() + kLong;
    while (std::chrono::steady_clock::now() < deadline) {
      Json json = Json::parse(ReadAll(Path(dir) + "/coordinator.json"), nullptr, false);
      if (json.is_object()) return json["address"];
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "no coordinator.json";
    return "";
  }

  std::string dir_ = "/tmp/locum-command-XXXXXX";
};

TEST_F(Command, Help_NamesSubcommandsAndExitStatus) {
  Outcome help = Run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* word : {"run", "coordinator", "agent", "status", "events", "failback", "127"}) {
    EXPECT_THAT(help.out, HasSubstr(word));
  }
  EXPECT_THAT(help.out, ::testing::Not(HasSubstr("agentd")));
  EXPECT_EQ(Run({"--version"}).out, "locum 0.1.0\n");
  for (const char* word : {"run", "coordinator", "agent", "status", "events", "failback"}) {
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
  Expect({"run", "--frob", "--", "true"}, 2, "");
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

TEST_F(Command, BadConfig_NamesFileLineAndReason) {
  std::ofstream(Path("c.toml")) << "[job]\nnodes = 2\nspare = 1\n";
  Expect({"run", "--config", "c.toml", "--", "true"}, 2,
         "c.toml:3: unknown key 'job.spare'; did you mean 'job.spares'?");
  std::ofstream(Path("c.toml")) << "[timeouts]\nheartbeat = \"1s\"\n";
  Expect({"run", "--config", "c.toml", "--", "true"}, 2, "c.toml:2: timeouts.heartbeat: ");
  Expect({"run", "--config", "absent.toml", "--", "true"}, 2, "cannot open the config file absent.toml");
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

TEST_F(Command, ForeignOrOtherStore_IsRefused) {
  std::filesystem::create_directory(Path("d"));
  std::ofstream(Path("d/store.db")) << "this is a text that is no database at all";
  Expect({"coordinator", "--dir", "d", "--", "true"}, 2, "is not a Locum store");
  Expect({"run", "--dir", "d", "--", "true"}, 2, "is not a Locum store");
  EXPECT_EQ(ReadAll(Path("d/store.db")), "this is a text that is no database at all");
}

// No process whose command line names this test's directory.
void ExpectNothingRuns(const std::string& dir) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string line = ReadAll("/proc/" + name + "/cmdline");
    EXPECT_EQ(line.find(dir), std::string::npos) << name << ": " << line;
  }
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
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Path(name))) {
      EXPECT_FALSE(entry.is_socket()) << entry.path();
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
  }
}

}  // namespace
