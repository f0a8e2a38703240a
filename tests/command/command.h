// Runs the real program in a directory of the test's own, and tells how it ended.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace locum::command {

using ::testing::HasSubstr;
using Json = nlohmann::json;
inline constexpr auto kLong = std::chrono::seconds(30);

inline std::string ReadAll(const std::string& path) {
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
  Process(const std::string& dir, std::vector<std::string> words, const std::vector<std::string>& environment = {},
          size_t file_limit = 0, const std::string& redirect = "")
      : out_(dir + "/stdout." + std::to_string(++count_)), err_(dir + "/stderr." + std::to_string(count_)) {
    words.insert(words.begin(), "locum");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(::open(out_.c_str(), O_WRONLY | O_CREAT, 0644), 1);
      ::dup2(::open(err_.c_str(), O_WRONLY | O_CREAT, 0644), 2);
      for (size_t i = 0; i + 1 < redirect.size(); i += 2) {  // "1-": closed, "1f": full, "1p": a pipe without a reader
        const int fd = redirect[i] - '0';
        int ends[2] = {::open("/dev/full", O_WRONLY), -1};
        if (redirect[i + 1] == 'p') [[maybe_unused]]
          int made = ::pipe(ends);
        if (ends[1] >= 0) ::close(ends[0]);
        redirect[i + 1] == '-' ? ::close(fd) : ::dup2(ends[1] >= 0 ? ends[1] : ends[0], fd);
        for (int end : ends) ::close(end);
      }
      ::unsetenv("LOCUM_TOKEN");
      for (const std::string& variable : environment) ::putenv(const_cast<char*>(variable.c_str()));
      if (file_limit != 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{file_limit, file_limit};
        ::setrlimit(RLIMIT_FSIZE, &limit);
      }
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
  void Expect(const std::vector<std::string>& words, int status, const std::string& text,
              const std::vector<std::string>& environment = {}) {
    Outcome outcome = Run(words, environment);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_EQ(outcome.err.rfind("locum: ", 0), 0u) << outcome.err;
  }
  // What lies in the test's directory, but for the outputs of the processes that ran.
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
      std::string name = entry.path().filename();
      if (name.rfind("stdout.", 0) != 0 && name.rfind("stderr.", 0) != 0) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
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

  // Waits for an event in the history of `dir`.
  void AwaitEvent(const std::string& dir, const std::string& name) {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (ReadAll(Path(dir) + "/events.jsonl").find("\"name\":\"" + name + "\"") == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no " << name;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::string dir_ = "/tmp/locum-command-XXXXXX";
};

// No process whose command line names this test's directory.
inline void ExpectNothingRuns(const std::string& dir) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string line = ReadAll("/proc/" + name + "/cmdline");
    EXPECT_EQ(line.find(dir), std::string::npos) << name << ": " << line;
  }
}

}  // namespace locum::command
