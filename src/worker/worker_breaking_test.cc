// A trainer that waits on sockets of its group for what will not come, in a generation that is over: the library breaks
// it out by these sockets, and by no other of the process.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>

#include "worker/test_worker.h"

namespace locum::testing {
namespace {

// Where the group's other end would be: connections to it stay up and say nothing.
class SilentPeer {
 public:
  explicit SilentPeer(int backlog = 8) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    EXPECT_EQ(::bind(listener_.get(), raw(), size), 0);
    EXPECT_EQ(::listen(listener_.get(), backlog), 0);
    ::getsockname(listener_.get(), raw(), &size);
  }
  int TryConnect(int fd) { return ::connect(fd, raw(), sizeof address_); }
  OwnedFd Connect() {
    OwnedFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(TryConnect(fd.get()), 0);
    return fd;
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }
  // Until the next one has to wait in connect.
  void Fill() {
    for (int i = 0; i < 3; ++i) {
      fill_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      TryConnect(fill_.back().get());
    }
  }

 private:
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&address_); }
  OwnedFd listener_;
  sockaddr_in address_{};
  std::vector<OwnedFd> fill_;
};

bool Up(const OwnedFd& fd) {
  pollfd polled{fd.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) == 0;
}

ssize_t Read(const OwnedFd& fd) {
  char byte;
  return ::recv(fd.get(), &byte, 1, 0);
}

void StartGeneration(Running& job, uint64_t generation) {
  Conductor conductor(job.ranks);
  conductor.Freeze(generation);
  conductor.Recover(generation, 0);
  conductor.WaitVerified(generation);
  conductor.Run(generation);
  for (auto& worker : job.workers) worker->Wait();
}

// Runs `collective` in the step, then freezes; the trainer must come to park by itself.
void BreakOut(Running& job, std::function<void(TestWorker&)> collective) {
  std::atomic<bool> inside{false};
  TestWorker& w = job[0];
  w.Do([&] {
    inside = true;
    collective(w);
    w.Next();
  });
  ASSERT_TRUE(w.end->Wait([&] { return inside.load(); }));
  Conductor(job.ranks).Freeze(2);
  ASSERT_TRUE(w.end->Wait([&] { return w.end->state.parked == Generation(2); }));
}

TEST(WorkerBreaking, BlockedInRecv_IsBrokenOutAndNothingElseIsTouched) {
  SilentPeer peer;
  const OwnedFd earlier = peer.Connect();  // before the first NextStep
  Running job(1);
  OwnedFd group, later;
  job.On(0, [&](TestWorker& w) {
    group = peer.Connect();
    EXPECT_TRUE(w.job->Connected().ok());
    later = peer.Connect();
  });
  ssize_t got = -2;
  BreakOut(job, [&](TestWorker&) { got = Read(group); });
  EXPECT_EQ(got, 0);
  EXPECT_TRUE(Up(earlier));
  EXPECT_TRUE(Up(later));
}

TEST(WorkerBreaking, BlockedInPollWithoutTimeout_IsBrokenOut) {
  SilentPeer peer;
  Running job(1);
  OwnedFd group;
  job.On(0, [&](TestWorker& w) {
    group = peer.Connect();
    EXPECT_TRUE(w.job->Connected().ok());
  });
  pollfd polled{-1, POLLIN, 0};
  BreakOut(job, [&](TestWorker&) {
    polled.fd = group.get();
    EXPECT_EQ(::poll(&polled, 1, -1), 1);
  });
  EXPECT_NE(polled.revents & POLLHUP, 0);
}

TEST(WorkerBreaking, BlockedInConnect_IsBrokenOutBeforeItHasConnected) {
  SilentPeer full(0), peer;
  full.Fill();
  const OwnedFd earlier = peer.Connect();
  Running job(1);
  const OwnedFd group(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  OwnedFd first;
  int rc = 1;
  BreakOut(job, [&](TestWorker&) {
    first = peer.Connect();
    rc = full.TryConnect(group.get());
  });
  EXPECT_EQ(rc, -1);
  EXPECT_EQ(Read(first), 0);
  EXPECT_TRUE(Up(earlier));
}

// One connection after the other is waited for: each is new to the next look.
TEST(WorkerBreaking, WhatConnectsAfterTheFreeze_IsBrokenToo) {
  SilentPeer peer;
  Running job(1);
  int broken = 0;
  BreakOut(job, [&](TestWorker&) {
    for (int i = 0; i < 4; ++i) broken += Read(peer.Connect()) == 0;
  });
  EXPECT_EQ(broken, 4);
}

TEST(WorkerBreaking, NotSaidToBeConnected_TheFirstCommitEndsTheConnecting) {
  SilentPeer peer;
  Running job(1);
  OwnedFd group, later;
  job.On(0, [&](TestWorker& w) {
    group = peer.Connect();
    EXPECT_TRUE(w.Commit().ok());
    w.Next();
    later = peer.Connect();
  });
  BreakOut(job, [&](TestWorker&) { EXPECT_EQ(Read(group), 0); });
  EXPECT_TRUE(Up(later));
}

TEST(WorkerBreaking, NumberReusedForAnotherConnection_IsNotTouched) {
  SilentPeer peer;
  Running job(1);
  OwnedFd group, reused;
  job.On(0, [&](TestWorker& w) {
    group = peer.Connect();
    reused = peer.Connect();
    EXPECT_TRUE(w.job->Connected().ok());
    const OwnedFd logging = peer.Connect();
    EXPECT_EQ(::dup2(logging.get(), reused.get()), reused.get());
  });
  BreakOut(job, [&](TestWorker&) { EXPECT_EQ(Read(group), 0); });
  EXPECT_TRUE(Up(reused));
}

TEST(WorkerBreaking, ParkedTrainer_KeepsItsConnections) {
  SilentPeer peer;
  Running job(1);
  OwnedFd group;
  job.On(0, [&](TestWorker& w) {
    group = peer.Connect();
    EXPECT_TRUE(w.job->Connected().ok());
    EXPECT_TRUE(w.job->Broken("elsewhere").ok());
  });
  job[0].Do([w = &job[0]] { w->Next(); });
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.position == Position::kParked; }));
  StartGeneration(job, 2);
  EXPECT_TRUE(Up(group));
}

TEST(WorkerBreaking, NextGeneration_KeepsTheNewGroupAndWhatTheOldOneLeftOpen) {
  SilentPeer peer;
  Running job(1);
  OwnedFd old, group;
  const auto connect = [&](OwnedFd* fd) {
    job.On(0, [&](TestWorker& w) {
      *fd = peer.Connect();
      EXPECT_TRUE(w.job->Connected().ok());
    });
  };
  connect(&old);
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->Broken("elsewhere").ok()); });
  job[0].Do([w = &job[0]] { w->Next(); });
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.position == Position::kParked; }));
  StartGeneration(job, 2);
  connect(&group);
  ssize_t got = -2;
  job[0].Do([&] {
    got = Read(group);
    job[0].Next();
  });
  Conductor(job.ranks).Freeze(3);
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.parked == Generation(3); }));
  EXPECT_EQ(got, 0);
  EXPECT_TRUE(Up(old));
}

TEST(Breaker, ProgramWithAnAbortCall_IsGivenAMomentFirst) {
  for (const bool has_abort : {true, false}) {
    std::vector<int64_t> broken_at;
    Time now{1'000'000'000};
    std::optional<Protocol::Straggler> straggler;
    Breaker breaker([&] { return straggler; }, [&](Generation) { broken_at.push_back(now.ns); });
    EXPECT_EQ(breaker.Look(now), std::nullopt);
    straggler = Protocol::Straggler{Generation(1), now, has_abort};
    const Time end = now + std::chrono::seconds(2);
    while (now < end) now = now + *breaker.Look(now);
    const Duration moment = has_abort ? kAbortMoment : Duration::zero();
    ASSERT_GE(broken_at.size(), 3u);
    EXPECT_EQ(broken_at[0], 1'000'000'000 + moment.count());
    EXPECT_EQ(broken_at[1] - broken_at[0], kFirstBreakPause.count());
    EXPECT_EQ(broken_at.back() - broken_at[broken_at.size() - 2], kLastBreakPause.count());
    straggler.reset();
    EXPECT_EQ(breaker.Look(now), std::nullopt);
    // The next generation's ladder begins at its first rung.
    straggler = Protocol::Straggler{Generation(2), now, has_abort};
    broken_at.clear();
    breaker.Look(now);
    EXPECT_EQ(broken_at.empty(), has_abort);
  }
}

TEST(WorkerBreaking, AbortCallThatDoesNotHelp_IsFollowedByTheSockets) {
  SilentPeer peer;
  Running job(1);
  OwnedFd group;
  std::atomic<bool> aborted{false};
  job.On(0, [&](TestWorker& w) {
    group = peer.Connect();
    EXPECT_TRUE(w.job->SetAbort([](void* c) { *static_cast<std::atomic<bool>*>(c) = true; }, &aborted).ok());
    EXPECT_TRUE(w.job->Connected().ok());
  });
  ssize_t got = -2;
  job[0].Do([&] {
    got = Read(group);
    job[0].Next();
  });
  const Conductor conductor(job.ranks);
  job[0].end->Send(EncodeOrder(conductor.Order(0, Mode::kFreeze, 2)));
  job[0].end->Send(EncodeAbort(Generation(2)));
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.parked == Generation(2); }));
  EXPECT_EQ(got, 0);
  EXPECT_TRUE(aborted);
}

// The library's own connections are made in the same moments: to the store, and to a source of state.
TEST(GroupConnections, LeadingToADataPort_IsNotTheGroups) {
  SilentPeer data_port, peer;
  GroupConnections connections([&] { return std::set<std::string>{data_port.address()}; });
  connections.Begin(Generation(1));
  const OwnedFd own = data_port.Connect(), group = peer.Connect();
  EXPECT_EQ(connections.Break(Generation(2)), 0u);
  EXPECT_EQ(connections.Break(Generation(1)), 1u);
  EXPECT_TRUE(Up(own));
  EXPECT_FALSE(Up(group));
}

TEST(WorkerBreaking, OwnConnectionsOfTheLibrary_AreNotTheGroups) {
  Running job(2);
  SilentPeer peer;
  OwnedFd group;
  job.On(1, [&](TestWorker& w) {
    EXPECT_TRUE(w.job->StoreSet("rank1", "here").ok());
    group = peer.Connect();
  });
  job.CommitAndNext(0);
  // Rank 1 has not said that it is connected, waits in its collective of step 0 and pulls beside it.
  ssize_t got = -2;
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  conductor.Recover(2, 1, {1}, {conductor.PeerOf(0)}, true);
  job[1].Do([&] {
    got = Read(group);
    job[1].Next();
  });
  job[0].Do([&] { job[0].Next(); });
  conductor.WaitVerified(2);
  EXPECT_EQ(got, 0);
  EXPECT_EQ(job[1].end->state.verified.retries, 0u);
  conductor.Run(2);
  job[0].Wait();
  job[1].Wait();
  EXPECT_EQ(job[0].state, job[1].state);
}

}  // namespace
}  // namespace locum::testing
