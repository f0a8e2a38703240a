// What a commit costs: 10,000 steps with an empty update through the shared library, as a trainer calls it.
//
//   commit_bench        prints the percentiles of begin+end, then runs itself under strace and looks for system calls
//                       of the trainer's thread between two markers. Exit 1: slower than 20 us at the 99th
//                       percentile, or a system call. Exit 2: could not measure (no strace, say).
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "locum/locum.hpp"
#include "worker/fake_node.h"

namespace locum::testing {
namespace {

constexpr int kWarmUp = 100;
constexpr int kSteps = 10'000;
constexpr int64_t kWantedNs = 20'000;
constexpr char kBegin[] = "LOCUM_MARK_BEGIN", kEnd[] = "LOCUM_MARK_END";

// A system call that fails and is easy to find in a trace.
void Mark(const char* text) { [[maybe_unused]] ssize_t n = ::write(-1, text, std::strlen(text)); }

// The trainer: `took` gets begin+end of each step. Prefaulted, so that the measuring itself costs no page fault.
void Train(std::vector<int64_t>* took) {
  took->assign(kSteps, 1);
  Job job{Options{}};
  uint64_t value = 0;
  job.Register("value", &value, sizeof value);
  int count = -kWarmUp;
  while (auto step = job.NextStep()) {
    if (count == 0) Mark(kBegin);
    if (count == kSteps) {
      Mark(kEnd);
      break;
    }
    job.EnterCollective();
    job.ReportLoss(0.5);
    const int64_t begin = MonotonicNow().ns;
    job.Commit(step, [] {});
    const int64_t end = MonotonicNow().ns;
    if (count >= 0) (*took)[static_cast<size_t>(count)] = end - begin;
    ++count;
  }
}

int Measure() {
  FakeNode node;
  ::setenv(kSocketVariable, node.socket_path().c_str(), 1);
  ::setenv(kWorkerVariable, "0000000000000001", 1);
  std::thread leading([&] {
    std::unique_ptr<NodeEnd> end = node.Admit();
    Conductor conductor({end.get()});
    conductor.Start();
    end->Wait([&] { return end->gone; }, std::chrono::seconds(120));
  });
  std::vector<int64_t> took;
  Train(&took);
  leading.join();
  std::sort(took.begin(), took.end());
  const int64_t p50 = took[kSteps / 2], p99 = took[kSteps * 99 / 100], most = took.back();
  std::printf("commit of an empty update: p50 %lld ns, p99 %lld ns, max %lld ns (wanted: p99 <= %lld ns)\n",
              static_cast<long long>(p50), static_cast<long long>(p99), static_cast<long long>(most),
              static_cast<long long>(kWantedNs));
  return p99 <= kWantedNs ? 0 : 1;
}

// The system calls of the thread that set the markers, between them; -1 when there are no markers.
int CountCalls(const std::string& trace) {
  std::ifstream in(trace);
  std::string line, thread;
  int calls = -1;
  while (std::getline(in, line)) {
    const std::string tid = line.substr(0, line.find(' '));
    if (line.find(kBegin) != std::string::npos) {
      thread = tid;
      calls = 0;
    } else if (line.find(kEnd) != std::string::npos) {
      return calls;
    } else if (tid == thread && line.find("<... write resumed>") == std::string::npos) {  // the marker's own end
      std::fprintf(stderr, "system call in the step loop: %s\n", line.c_str());
      ++calls;
    }
  }
  return -1;
}

int Trace() {
  const TempDir dir;
  const std::string trace = dir / "trace", self = std::filesystem::read_symlink("/proc/self/exe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Not /proc/self/exe: in strace that is strace.
    ::execlp("strace", "strace", "-f", "-qq", "-o", trace.c_str(), self.c_str(), "--measure", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 127) {
    std::fprintf(stderr, "commit_bench: strace cannot be run; is it installed?\n");
    return 2;
  }
  const int calls = CountCalls(trace);
  if (calls < 0) {
    std::fprintf(stderr, "commit_bench: the trace has no markers\n");
    return 2;
  }
  std::printf("system calls of the trainer's thread in %d steps: %d (wanted: 0)\n", kSteps, calls);
  return calls == 0 ? 0 : 1;
}

}  // namespace
}  // namespace locum::testing

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--measure") {
    locum::testing::Measure();
    return 0;
  }
  const int measured = locum::testing::Measure();
  const int traced = locum::testing::Trace();
  return std::max(measured, traced);
}
