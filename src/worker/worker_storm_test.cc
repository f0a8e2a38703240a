// Many generations in a row, opened at random moments of a running job, some before the last one is done: no commit
// is lost or torn, no state is mixed, nobody hangs. The seed is printed; LOCUM_SEED replays it.
#include <cstdlib>
#include <random>

#include "base/random.h"
#include "worker/fake_node.h"
#include "worker/worker_job.h"

namespace locum::testing {
namespace {

constexpr size_t kRanks = 3;
constexpr int kGenerations = 40;

// A rank that trains without collectives. All bytes of its state are those of its step, or it fails the test.
class Trainer {
 public:
  Trainer(FakeNode& node, uint64_t incarnation) : state_(2 * kChunkBytes + 77) {
    JoinParameters parameters;
    parameters.socket = node.socket_path();
    parameters.worker = Incarnation(incarnation);
    thread_ = std::thread([this, parameters] {
      Result<std::unique_ptr<WorkerJob>> job = WorkerJob::Join(parameters);
      ASSERT_TRUE(job.ok());
      Run(**job);
    });
    end = node.Admit();
  }
  ~Trainer() {
    end->socket.Reset();
    thread_.join();
  }
  std::unique_ptr<NodeEnd> end;
  std::atomic<uint64_t> commits{0};

 private:
  void Check(uint64_t step) {
    for (const uint8_t byte : state_) ASSERT_EQ(byte, static_cast<uint8_t>(step * 3)) << "state " << step;
  }
  void Run(WorkerJob& job) {
    ASSERT_TRUE(job.RegisterMemory({"s", state_.size(), "all"}, state_.data()).ok());
    locum_step step{sizeof(locum_step)};
    while (true) {
      Result<int> more = job.NextStep(&step);
      if (!more.ok()) return;  // the node is gone: the end of the test
      Check(step.step);
      if (!job.BeginUpdate().ok()) continue;
      for (uint8_t& byte : state_) byte = static_cast<uint8_t>((step.step + 1) * 3);
      ASSERT_TRUE(job.EndUpdate().ok());
      ++commits;
    }
  }

  std::vector<uint8_t> state_;
  std::thread thread_;
};

TEST(WorkerStorm, GenerationsAtAnyMoment_StateIsAlwaysThatOfItsStep) {
  const char* given = std::getenv("LOCUM_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("replay with LOCUM_SEED=" + std::to_string(seed));
  Random random(seed);
  FakeNode node;
  std::vector<std::unique_ptr<Trainer>> trainers;
  std::vector<NodeEnd*> ends;
  for (size_t r = 0; r < kRanks; ++r) {
    trainers.push_back(std::make_unique<Trainer>(node, 10 + r));
    ends.push_back(trainers.back()->end.get());
  }
  Conductor conductor(ends);
  conductor.Start();
  uint64_t newest_run = 0;  // the step that the last generation that ran began from
  for (uint64_t g = 2; g < 2 + kGenerations; ++g) {
    ::usleep(static_cast<useconds_t>(random.Below(4000)));
    conductor.Freeze(g);
    if (HasFatalFailure()) return;
    std::vector<size_t> valid;
    for (size_t r = 0; r < kRanks; ++r) {
      if (ends[r]->state.holding.valid) valid.push_back(r);
    }
    ASSERT_FALSE(valid.empty());
    const size_t source = valid[random.Below(valid.size())];
    const Step step = ends[source]->state.holding.step;
    ASSERT_GE(step.value, newest_run);
    std::vector<size_t> pullers;
    for (size_t r = 0; r < kRanks; ++r) {
      const Holding& holding = ends[r]->state.holding;
      if (!holding.valid || holding.step != step) pullers.push_back(r);
    }
    conductor.Recover(g, step.value, pullers, {conductor.PeerOf(source)}, random.OneIn(2));
    // Now and then the next generation comes while this one is being recovered.
    if (random.OneIn(3)) continue;
    conductor.WaitVerified(g);
    if (HasFatalFailure()) return;
    if (random.OneIn(4)) continue;
    conductor.Run(g);
    newest_run = step.value;
    if (random.OneIn(2)) {
      for (NodeEnd* end : ends) {
        ASSERT_TRUE(end->Wait([&] { return end->state.first_commit == Generation(g); }));
      }
    }
  }
  uint64_t commits = 0;
  for (const auto& trainer : trainers) commits += trainer->commits;
  EXPECT_GT(commits, 0u);
}

}  // namespace
}  // namespace locum::testing
