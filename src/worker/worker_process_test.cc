// The minimal example as real processes under a fake node: a rank is killed in mid-run, a spare takes its place, and
// the result is that of an undisturbed run to the last bit.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>

#include "worker/fake_node.h"

namespace locum::testing {
namespace {

class Process {
 public:
  Process(FakeNode& node, uint64_t incarnation, const std::string& steps, const std::string& step_ms)
      : output_(node.dir() / ("out." + std::to_string(incarnation))) {
    const std::string name = ToHex(incarnation);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setenv(kSocketVariable, node.socket_path().c_str(), 1);
      ::setenv(kWorkerVariable, name.c_str(), 1);
      ::dup2(::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      ::execl(LOCUM_MINIMAL, "minimal", "--steps", steps.c_str(), "--size", "3000000", "--step-ms", step_ms.c_str(),
              nullptr);
      ::_exit(127);
    }
    end = node.Admit();
  }
  ~Process() {
    if (pid_ > 0) Kill();
  }
  void Kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  int Join() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  std::string Output() const {
    std::ifstream in(output_);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  Step step() { return Word::Unpack(end->page()->word).step; }

  std::unique_ptr<NodeEnd> end;

 private:
  std::string output_;
  pid_t pid_ = 0;
};

// Runs 3 ranks to the end; kills `victim` once it has come to the middle. The output of rank 0's holder.
std::string RunJob(int victim) {
  FakeNode node;
  std::vector<std::unique_ptr<Process>> processes;
  const std::string steps = "60", step_ms = victim < 0 ? "0" : "3";
  for (uint64_t i = 0; i < 4; ++i) processes.push_back(std::make_unique<Process>(node, 50 + i, steps, step_ms));
  std::vector<Process*> ranks = {processes[0].get(), processes[1].get(), processes[2].get()};
  const auto ends = [&] { return std::vector<NodeEnd*>{ranks[0]->end.get(), ranks[1]->end.get(), ranks[2]->end.get()}; };
  EXPECT_TRUE(processes[3]->end->Wait([&] { return processes[3]->end->info.has_value(); }));
  Conductor(ends()).Start();
  uint64_t generation = 1;
  if (victim >= 0) {
    const size_t v = static_cast<size_t>(victim);
    EXPECT_TRUE(ranks[v]->end->Wait([&] { return ranks[v]->step() >= Step(20); }));
    ranks[v]->Kill();
    ranks[v] = processes[3].get();
    generation = 2;
    Conductor next(ends());
    next.Freeze(2);
    // Who still waits for the dead one is broken out.
    std::optional<Step> newest;
    size_t source = 0;
    for (size_t r = 0; r < 3; ++r) {
      if (ranks[r]->end->state.parked != Generation(2)) ranks[r]->end->Send(EncodeAbort(Generation(1)));
      if (r != v && (!newest || ranks[r]->end->state.holding.step > *newest)) {
        newest = ranks[r]->end->state.holding.step;
        source = r;
      }
    }
    std::vector<size_t> pullers;
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(ranks[r]->end->Wait([&] { return ranks[r]->end->state.parked == Generation(2); }));
      if (r == v || ranks[r]->end->state.holding.step != *newest) pullers.push_back(r);
    }
    next.Recover(2, newest->value, pullers, {next.PeerOf(source)});
    next.WaitVerified(2);
    next.Run(2);
  }
  Conductor(ends()).Finish(generation);
  for (Process* rank : ranks) EXPECT_EQ(rank->Join(), 0);
  for (size_t r = 1; r < 3; ++r) EXPECT_EQ(ranks[r]->Output(), "");
  return ranks[0]->Output();
}

TEST(WorkerProcess, KilledRank_IsReplacedAndTheResultIsTheSame) {
  const std::string undisturbed = RunJob(-1);
  EXPECT_EQ(undisturbed.rfind("final step=60 loss=", 0), 0u) << undisturbed;
  for (const int victim : {0, 1, 2}) EXPECT_EQ(RunJob(victim), undisturbed) << "rank " << victim << " was killed";
}

}  // namespace
}  // namespace locum::testing
