// Test support: a worker in this process, with some memory as its state and a thread that trains. The test's
// thread decides when the trainer goes on, so that no outcome depends on time.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "worker/fake_node.h"
#include "worker/worker_job.h"

namespace locum::testing {

class TestWorker {
 public:
  TestWorker(FakeNode& node, uint64_t incarnation, uint64_t total_steps = 0, size_t state_bytes = 3 * kChunkBytes + 100)
      : state(state_bytes), small(64) {
    JoinParameters parameters;
    parameters.socket = node.socket_path();
    parameters.worker = Incarnation(incarnation);
    parameters.total_steps = total_steps;
    parameters.fingerprint = "test=1";
    std::thread joining([&] {
      Result<std::unique_ptr<WorkerJob>> joined = WorkerJob::Join(parameters);
      if (joined.ok()) job = std::move(*joined);
      else ADD_FAILURE() << joined.status().message();
    });
    end = node.Admit();
    joining.join();
    EXPECT_TRUE(job->RegisterMemory({"weights", state.size(), "all"}, state.data()).ok());
    EXPECT_TRUE(job->RegisterCallbacks({"small", small.size(), "all"}, ReadSmall, WriteSmall, this).ok());
    trainer_ = std::thread([this] { Train(); });
  }
  ~TestWorker() {
    Do([this] { quit_ = true; });
    // A trainer that waits in the library is woken by the loss of its node.
    end->socket.Reset();
    trainer_.join();
    job.reset();
  }

  // Runs `what` on the trainer's thread, after what was asked before; Wait returns when all of it is done.
  void Do(std::function<void()> what) {
    std::lock_guard<std::mutex> lock(mu_);
    queue_.push_back(std::move(what));
    changed_.notify_all();
  }
  bool Idle() {
    std::lock_guard<std::mutex> lock(mu_);
    return queue_.empty() && !busy_;
  }
  // Pumps the node's end too.
  void Wait() { ASSERT_TRUE(end->Wait([&] { return Idle(); })); }

  // ---- On the trainer's thread, or while it is idle ----
  void Next() {
    Result<int> result = job->NextStep(&step);
    rc = result.ok() ? *result : -1;
    error = result.status();
  }
  Status Commit() {
    Status begun = job->BeginUpdate();
    if (!begun.ok()) return begun;
    for (uint8_t& byte : state) byte = static_cast<uint8_t>(byte + 1);
    small[0] = static_cast<uint8_t>(small[0] + 1);
    return job->EndUpdate();
  }

  std::vector<uint8_t> state, small;
  std::unique_ptr<NodeEnd> end;
  std::unique_ptr<WorkerJob> job;
  locum_step step{sizeof(locum_step)};
  int rc = -2;
  Status error;

 private:
  static int ReadSmall(void* self, uint64_t offset, void* out, size_t bytes) {
    std::memcpy(out, static_cast<TestWorker*>(self)->small.data() + offset, bytes);
    return 0;
  }
  static int WriteSmall(void* self, uint64_t offset, const void* in, size_t bytes) {
    std::memcpy(static_cast<TestWorker*>(self)->small.data() + offset, in, bytes);
    return 0;
  }
  void Train() {
    std::unique_lock<std::mutex> lock(mu_);
    while (!quit_) {
      changed_.wait(lock, [&] { return !queue_.empty(); });
      std::function<void()> what = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      what();
      lock.lock();
      busy_ = false;
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool quit_ = false;
  std::thread trainer_;
};

// `n` workers that run generation 1, each inside its first step.
struct Running {
  explicit Running(size_t n, uint64_t total_steps = 0, size_t extra = 0) {
    for (size_t i = 0; i < n + extra; ++i) {
      workers.push_back(std::make_unique<TestWorker>(node, 100 + i, total_steps));
      workers[i]->Do([w = workers[i].get()] { w->Next(); });
    }
    for (size_t i = 0; i < n; ++i) ranks.push_back(workers[i]->end.get());
    Conductor conductor(ranks);
    conductor.Start();
    for (size_t i = 0; i < n; ++i) workers[i]->Wait();
    for (size_t i = n; i < n + extra; ++i) {
      EXPECT_TRUE(workers[i]->end->Wait([&] { return workers[i]->end->info.has_value(); }));
    }
  }
  TestWorker& operator[](size_t i) { return *workers[i]; }
  void On(size_t i, std::function<void(TestWorker&)> what) {
    TestWorker* w = workers[i].get();
    w->Do([w, what] { what(*w); });
    w->Wait();
  }
  void CommitAndNext(size_t i) {
    On(i, [](TestWorker& w) {
      EXPECT_TRUE(w.Commit().ok());
      w.Next();
    });
  }

  FakeNode node;
  std::vector<std::unique_ptr<TestWorker>> workers;
  std::vector<NodeEnd*> ranks;
};

}  // namespace locum::testing
