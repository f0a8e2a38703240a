// What a worker in its step loop exchanges with others: reports and orders of its node, values of the group's store,
// an echo with a peer, and the step log that it leaves.
#include <unistd.h>

#include <atomic>
#include <bit>
#include <fstream>
#include <sstream>

#include "state/step_log.h"
#include "worker/test_worker.h"

namespace locum::testing {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(WorkerExchange, Broken_IsReportedAndParksUntilTheNextGeneration) {
  Running job(1);
  job[0].Do([w = &job[0]] {
    EXPECT_TRUE(w->job->EnterCollective().ok());
    EXPECT_TRUE(w->job->Broken("connection reset by rank 3").ok());
    w->Next();
  });
  ASSERT_TRUE(job[0].end->Wait(
      [&] { return job[0].end->state.broken == Generation(1) && job[0].end->state.position == Position::kParked; }));
  EXPECT_EQ(job[0].end->state.broken_why, "connection reset by rank 3");
  EXPECT_EQ(job[0].end->state.broken_step, Step(0));
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  conductor.Recover(2, 0);
  conductor.WaitVerified(2);
  conductor.Run(2);
  job[0].Wait();
  EXPECT_EQ(job[0].step.regrouped, 1u);
}

TEST(WorkerExchange, Connected_IsReported) {
  Running job(1);
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->Connected().ok()); });
  EXPECT_TRUE(job[0].end->Wait(
      [&] { return job[0].end->state.connected == Generation(1) && job[0].end->state.connected_ns > 0; }));
}

TEST(WorkerExchange, Abort_IsCalledOnceAndOnlyOutsideNextStep) {
  Running job(1);
  std::atomic<int> calls{0};
  job.On(0, [&](TestWorker& w) {
    EXPECT_TRUE(w.job->SetAbort([](void* c) { ++*static_cast<std::atomic<int>*>(c); }, &calls).ok());
  });
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  job[0].end->Send(EncodeAbort(Generation(1)));
  job[0].end->Send(EncodeAbort(Generation(1)));
  ASSERT_TRUE(job[0].end->Wait([&] { return calls == 1; }));
  job[0].Do([w = &job[0]] { w->Next(); });
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.parked == Generation(2); }));
  job[0].end->Send(EncodeAbort(Generation(2)));
  conductor.Recover(2, 0);
  conductor.WaitVerified(2);
  conductor.Run(2);
  job[0].Wait();
  job[0].end->Send(EncodeAbort(Generation(1)));  // late
  const int readies = job[0].end->readies;
  job[0].end->Send(EncodeResend());
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->readies > readies; }));
  EXPECT_EQ(calls, 1);
}

TEST(WorkerExchange, Resend_TellsANewAgentEverything) {
  Running job(1);
  job.CommitAndNext(0);
  const int readies = job[0].end->readies, states = job[0].end->states;
  job[0].end->Send(EncodeResend());
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->readies == readies + 1 && job[0].end->states > states; }));
  EXPECT_EQ(job[0].end->state.verified.generation, Generation(1));
  EXPECT_EQ(job[0].end->state.word.step, Step(1));
}

TEST(WorkerExchange, NodeGone_EveryWaitEndsWithAClearError) {
  Running job(1, 0, 1);
  job[1].end->socket.Reset();
  ASSERT_TRUE(job[0].end->Wait([&] { return job[1].Idle(); }));
  EXPECT_EQ(job[1].error.code(), Code::kUnavailable);
  EXPECT_NE(job[1].error.message().find("keeper and agent are gone"), std::string::npos);
}

TEST(WorkerExchange, Refused_NextStepSaysWhy) {
  Running job(1, 0, 1);
  WorkerOrder order;
  order.worker = Incarnation(101);
  order.refuse = "shard 'weights' has 10 bytes here and 20 on rank 0";
  job[1].end->Send(EncodeOrder(order));
  job[1].Wait();
  EXPECT_EQ(job[1].error.code(), Code::kRefused);
  EXPECT_EQ(job[1].error.message(), order.refuse);
}

TEST(WorkerExchange, NobodyReadsForAWhile_TheNewestReportArrives) {
  Running job(1);
  for (int i = 0; i < 3000; ++i) {
    job[0].Do([w = &job[0]] { EXPECT_TRUE(w->job->Connected().ok()); });
  }
  while (!job[0].Idle()) ::usleep(1000);
  job[0].Do([w = &job[0]] { EXPECT_TRUE(w->job->Broken("last").ok()); });
  EXPECT_TRUE(job[0].end->Wait([&] { return job[0].end->state.broken_why == "last"; }));
}

TEST(WorkerExchange, Store_GetWaitsForSetAndIsOverAtAFreeze) {
  Running job(2);
  Result<std::string> got = Internal("");
  job[1].Do([&] { got = job[1].job->StoreGet("rank0", kPatience); });
  ::usleep(20'000);
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->StoreSet("rank0", std::string("a\0b", 3)).ok()); });
  job[1].Wait();
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(*got, std::string("a\0b", 3));
  job.On(1, [&](TestWorker& w) { got = w.job->StoreGet("rank0", kPatience); });
  EXPECT_TRUE(got.ok());
  job.On(1, [&](TestWorker& w) { got = w.job->StoreGet("nobody", std::chrono::milliseconds(20)); });
  EXPECT_EQ(got.status().code(), Code::kTimeout);

  Result<std::string> hosts = Internal(""), others = Internal("");
  job[0].Do([&] { hosts = job[0].job->StoreGet("never", kPatience); });
  job[1].Do([&] { others = job[1].job->StoreGet("never", kPatience); });
  ::usleep(20'000);
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  job[0].Wait();
  job[1].Wait();
  EXPECT_EQ(hosts.status().code(), Code::kInterrupted);
  EXPECT_EQ(others.status().code(), Code::kInterrupted);
  job.On(0, [&](TestWorker& w) { EXPECT_EQ(w.job->StoreSet("x", "y").code(), Code::kInterrupted); });

  for (size_t r = 0; r < 2; ++r) job[r].Do([w = &job[r]] { w->Next(); });
  conductor.Recover(2, 0);
  conductor.WaitVerified(2);
  conductor.Run(2);
  job[0].Wait();
  job[1].Wait();
  // A new generation, a new store.
  job.On(1, [&](TestWorker& w) { got = w.job->StoreGet("rank0", std::chrono::milliseconds(20)); });
  EXPECT_EQ(got.status().code(), Code::kTimeout);
}

// Only the host froze so far: who waits at its store is sent back, and says that the generation is broken.
TEST(WorkerExchange, StoreHostFreezesFirst_WaitersAreInterrupted) {
  Running job(2);
  Result<std::string> got = Internal("");
  job[1].Do([&] { got = job[1].job->StoreGet("never", kPatience); });
  ::usleep(20'000);
  job[0].end->Send(EncodeOrder(Conductor(job.ranks).Order(0, Mode::kFreeze, 2)));
  job[1].Wait();
  EXPECT_EQ(got.status().code(), Code::kInterrupted);
}

TEST(WorkerExchange, StoreHostDies_IsReportedAsBroken) {
  Running job(2);
  Result<std::string> got = Internal("");
  job[1].Do([&] { got = job[1].job->StoreGet("never", kPatience); });
  ::usleep(20'000);
  job[0].end->socket.Reset();
  job.workers[0].reset();
  job.ranks.erase(job.ranks.begin());
  job[1].Wait();
  EXPECT_EQ(got.status().code(), Code::kInterrupted);
  EXPECT_TRUE(job[1].end->Wait([&] { return job[1].end->state.broken == Generation(1); }));
}

TEST(WorkerExchange, Echo_ComparesRandomBytesWithAPeer) {
  Running job(1, 0, 1);
  WorkerOrder order;
  order.worker = Incarnation(101);
  order.echo_nonce = 77;
  order.echo_peer = Conductor(job.ranks).PeerOf(0);
  job[1].end->Send(EncodeOrder(order));
  ASSERT_TRUE(job[1].end->Wait([&] { return job[1].end->state.echo.nonce == 77; }));
  EXPECT_TRUE(job[1].end->state.echo.ok) << job[1].end->state.echo.error;
  EXPECT_GT(job[1].end->state.echo.bytes, 1u << 20);
  EXPECT_GT(job[1].end->state.echo.duration_ns, 0);
  order.echo_nonce = 78;
  order.echo_peer.worker = Incarnation(5);
  job[1].end->Send(EncodeOrder(order));
  ASSERT_TRUE(job[1].end->Wait([&] { return job[1].end->state.echo.nonce == 78; }));
  EXPECT_FALSE(job[1].end->state.echo.ok);
}

TEST(WorkerExchange, StepLog_HasEveryStepWithItsTimesAndLossBits) {
  Running job(1);
  const std::string path = job[0].end->welcome.step_log;
  job.On(0, [](TestWorker& w) {
    EXPECT_TRUE(w.job->Connected().ok());
    EXPECT_TRUE(w.job->ReportLoss(0.1).ok());
    EXPECT_TRUE(w.job->EnterCollective().ok());
    EXPECT_TRUE(w.Commit().ok());
    w.Next();
    EXPECT_TRUE(w.job->ReportLoss(2.5).ok());
    EXPECT_TRUE(w.job->EnterCollective().ok());
    EXPECT_TRUE(w.job->Broken("x").ok());
  });
  const std::string file = ReadFile(path);
  ASSERT_GE(file.size(), kStepLogHeaderBytes + 3 * sizeof(StepRecord));
  StepLogHeader head;
  std::memcpy(&head, file.data(), sizeof head);
  EXPECT_EQ(std::string(head.magic, 8), kStepLogMagic);
  EXPECT_EQ(head.worker, 100u);
  EXPECT_EQ(head.dropped, 0u);
  StepRecord records[3];
  std::memcpy(records, file.data() + kStepLogHeaderBytes, sizeof records);
  EXPECT_EQ(records[0].kind, 1u);
  EXPECT_EQ(records[0].step, 0u);
  EXPECT_EQ(records[0].generation, 1u);
  EXPECT_EQ(records[0].loss_bits, std::bit_cast<uint64_t>(0.1));
  EXPECT_LE(records[0].entered_ns, records[0].connected_ns);
  EXPECT_LE(records[0].connected_ns, records[0].collective_ns);
  EXPECT_LE(records[0].collective_ns, records[0].committed_ns);
  EXPECT_EQ(records[1].step, 1u);
  EXPECT_EQ(records[1].committed_ns, 0);
  EXPECT_EQ(records[1].connected_ns, 0);
  EXPECT_EQ(records[2].kind, 0u);
}

}  // namespace
}  // namespace locum::testing
