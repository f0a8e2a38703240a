// A trainer that misbehaves when told to. Its numbers are those of a counter: state s is a function of s alone, so a
// run's end is known without an undisturbed one: "final step=S sum=...".
//
//   unruly --steps N --size BYTES --step-ms MS [--do WHAT --rank R --at STEP --mb N] [--once FILE]
//          [--file PATH]
//
// From step AT on, on rank R (default: each rank), before its collective; with --once only who makes FILE:
//   exit0, exit3  ends with this status                abort     calls abort()
//   throw         throws out of main                   torn      throws inside the update
//   fork          leaves children in sessions of their own, that ignore SIGTERM; each writes its pid to PATH
//   write         writes to PATH in each step          stay      stays in a broken collective for ever
//   leave         exits with status 4 when its collective breaks
//   log           writes --mb megabytes of lines to standard output, once
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "group.h"
#include "locum/locum.hpp"

namespace {

struct Flags {
  uint64_t steps = 100, size = 4096, step_ms = 10, at = 0, rank = UINT64_MAX, megabytes = 0;
  std::string what, once, file;
};

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    const auto number = [&] { return std::strtoull(value.c_str(), nullptr, 10); };
    if (name == "--steps")
      flags.steps = number();
    else if (name == "--size")
      flags.size = number();
    else if (name == "--step-ms")
      flags.step_ms = number();
    else if (name == "--at")
      flags.at = number();
    else if (name == "--mb")
      flags.megabytes = number();
    else if (name == "--rank")
      flags.rank = number();
    else if (name == "--do")
      flags.what = value;
    else if (name == "--once")
      flags.once = value;
    else if (name == "--file")
      flags.file = value;
    else
      std::exit(2);
  }
  return flags;
}

// True once in the life of FILE, or always without one.
bool Mine(const Flags& flags) {
  if (flags.once.empty()) return true;
  const int fd = open(flags.once.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

void Append(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_CREAT | O_APPEND | O_WRONLY, 0600);
  if (fd < 0) return;
  if (write(fd, text.data(), text.size()) < 0) std::perror("unruly");
  close(fd);
}

void LeaveChildren(const Flags& flags) {
  for (int i = 0; i < 2; ++i) {
    const pid_t child = fork();
    if (child != 0) continue;
    setsid();
    signal(SIGTERM, SIG_IGN);
    if (fork() != 0) _exit(0);
    Append(flags.file, std::to_string(getpid()) + "\n");
    sleep(600);
    _exit(0);
  }
}

void WriteLines(uint64_t megabytes) {
  const std::string line = "unruly: " + std::string(991, '.') + "\n";
  for (uint64_t i = 0; i < megabytes * 1000; ++i) std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

class Trainer {
 public:
  explicit Trainer(const Flags& flags) : flags_(flags), state_(flags.size / 8) {}

  void Train() {
    locum::Options options;
    options.total_steps = flags_.steps;
    locum::Job job(options);
    job.Register("state", state_.data(), state_.size() * sizeof(double));
    job.SetAbort([&] { group_.Abort(); });
    do {
      while (auto step = job.NextStep()) One(job, step);
    } while (!job.Finish());
    double sum = 0;
    for (double x : state_) sum += x;
    if (job.Rank() == 0u)
      std::printf("final step=%llu sum=%.17g\n", static_cast<unsigned long long>(flags_.steps), sum);
  }

 private:
  void One(locum::Job& job, const locum::TrainStep& step) {
    if (step.regrouped) {
      if (!group_.Connect(job, step)) return job.Broken("cannot connect");
      job.Connected();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(flags_.step_ms));
    const bool told = step.step >= flags_.at && (flags_.rank == UINT64_MAX || flags_.rank == step.rank);
    if (told) Misbehave();
    std::vector<double> sum = {static_cast<double>(step.step + 1) * (step.rank + 1)};
    job.EnterCollective();
    if (!group_.AllReduce(sum, [] {})) {
      if (flags_.rank == step.rank && flags_.what == "leave") std::exit(4);
      if (flags_.rank == step.rank && flags_.what == "stay" && Mine(flags_))
        std::this_thread::sleep_for(std::chrono::hours(1));
      return job.Broken("all-reduce failed");
    }
    job.ReportLoss(sum[0]);
    job.Commit(step, [&] {
      if (told && flags_.what == "torn" && Mine(flags_)) throw std::runtime_error("told to throw in the update");
      for (double& x : state_) x += sum[0];
    });
  }

  void Misbehave() {
    const std::string& what = flags_.what;
    if (what == "write") {
      if (!decided_) writes_ = Mine(flags_);
      decided_ = true;
      if (writes_) Append(flags_.file, "x");
    }
    if (what == "fork" && Mine(flags_)) return LeaveChildren(flags_);
    if (what == "log" && !std::exchange(decided_, true)) return WriteLines(flags_.megabytes);
    if (what == "exit0" && Mine(flags_)) std::exit(0);
    if (what == "exit3" && Mine(flags_)) std::exit(3);
    if (what == "abort" && Mine(flags_)) std::abort();
    if (what == "throw" && Mine(flags_)) throw std::runtime_error("told to throw");
  }

  const Flags flags_;
  bool decided_ = false, writes_ = false;
  std::vector<double> state_;
  Group group_{false};
};

}  // namespace

int main(int argc, char** argv) {
  Trainer(Parse(argc, argv)).Train();
  return 0;
}
