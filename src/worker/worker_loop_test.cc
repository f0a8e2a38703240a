// The step loop around recoveries: stops, finishing, breaking, the store, the step log, a lost node.
#include <csignal>
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

// The report of being parked before an earlier step may still be on its way.
bool ParkedAt(const TestWorker& w, uint64_t step) {
  return w.end->state.position == Position::kParked && w.end->state.starting == Step(step);
}

TEST(WorkerLoop, PlannedStop_ParksBeforeTheStepAndReleaseGoesOn) {
  Running job(1);
  job[0].end->page()->stop_at = 2;
  job.CommitAndNext(0);
  EXPECT_EQ(job[0].step.step, 1u);
  job[0].Do([w = &job[0]] {
    EXPECT_TRUE(w->Commit().ok());
    w->Next();
  });
  ASSERT_TRUE(job[0].end->Wait([&] { return ParkedAt(job[0], 2); }));
  EXPECT_EQ(job[0].end->state.stop_at, Step(2));
  EXPECT_EQ(Word::Unpack(job[0].end->page()->word), (Word{Generation(1), Step(2), WordState::kOpen}));
  EXPECT_FALSE(job[0].Idle());
  // The agent changes the page, then sends the order.
  job[0].end->page()->stop_at = kMaxStep;
  WorkerOrder order = Conductor(job.ranks).Order(0, Mode::kRun, 1);
  order.peers = {Conductor(job.ranks).PeerOf(0)};
  job[0].end->Send(EncodeOrder(order));
  job[0].Wait();
  EXPECT_EQ(job[0].rc, 1);
  EXPECT_EQ(job[0].step.step, 2u);
  EXPECT_EQ(job[0].step.regrouped, 0u);
}

TEST(WorkerLoop, PlannedStopThenFreeze_StateIsHeldAndRunsOnInTheNextGeneration) {
  Running job(2);
  for (size_t r = 0; r < 2; ++r) {
    job[r].end->page()->stop_at = 1;
    job[r].Do([w = &job[r]] {
      EXPECT_TRUE(w->Commit().ok());
      w->Next();
    });
  }
  Conductor conductor(job.ranks);
  for (size_t r = 0; r < 2; ++r) {
    ASSERT_TRUE(job[r].end->Wait([&] { return ParkedAt(job[r], 1); }));
  }
  conductor.Freeze(2);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(job[r].end->state.parked, Generation(2));
    EXPECT_EQ(job[r].end->state.holding, (Holding{true, Generation(1), Step(1)}));
    job[r].end->page()->stop_at = kMaxStep;
  }
  conductor.Recover(2, 1);
  conductor.WaitVerified(2);
  conductor.Run(2);
  for (size_t r = 0; r < 2; ++r) {
    job[r].Wait();
    EXPECT_EQ(job[r].step.step, 1u);
    EXPECT_EQ(job[r].step.regrouped, 1u);
  }
}

TEST(WorkerLoop, StopAtTheStepThatAGenerationBeginsWith_HoldsItsFirstStep) {
  Running job(1);
  job.CommitAndNext(0);
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  job[0].end->page()->stop_at = 1;
  job[0].Do([w = &job[0]] { w->Next(); });
  conductor.Recover(2, 1);
  conductor.WaitVerified(2);
  conductor.Run(2);
  ASSERT_TRUE(job[0].end->Wait([&] {
    return Word::Unpack(job[0].end->page()->word) == Word{Generation(2), Step(1), WordState::kOpen};
  }));
  ::usleep(20'000);
  EXPECT_FALSE(job[0].Idle());
  EXPECT_EQ(job[0].end->page()->position.load(), static_cast<uint32_t>(Position::kParked));
  job[0].end->page()->stop_at = kMaxStep;
  conductor.Run(2);
  job[0].Wait();
  EXPECT_EQ(job[0].step.step, 1u);
  EXPECT_EQ(job[0].step.regrouped, 1u);
}

// The agent stores stop_at and then reads starting; the worker the other way round. Whatever the order, one sees
// the other: a stop is never passed unseen.
TEST(WorkerLoop, StopRace_OneSideSeesTheOther) {
  Running job(1);
  Page* page = job[0].end->page();
  for (uint64_t round = 0; round < 200; ++round) {
    const uint64_t wanted = job[0].step.step + 1;
    job[0].Do([w = &job[0]] {
      EXPECT_TRUE(w->Commit().ok());
      w->Next();
    });
    page->stop_at.store(wanted);
    const uint64_t starting = page->starting.load();
    if (starting < wanted) {
      // Not begun when it was looked at: it must park, and never begin.
      ASSERT_TRUE(job[0].end->Wait([&] { return page->starting.load() == wanted; }));
      ASSERT_TRUE(job[0].end->Wait([&] { return page->position.load() == static_cast<uint32_t>(Position::kParked); }));
      EXPECT_FALSE(job[0].Idle());
    }
    page->stop_at.store(kMaxStep);
    job[0].end->Send(EncodeOrder(Conductor(job.ranks).Order(0, Mode::kIdle, 1)));
    job[0].Wait();
    ASSERT_EQ(job[0].step.step, wanted);
  }
}

TEST(WorkerLoop, LastStep_FinishWaitsForTheRecord) {
  Running job(2, 1);
  for (size_t r = 0; r < 2; ++r) {
    job.CommitAndNext(r);
    EXPECT_EQ(job[r].rc, 0);
    EXPECT_EQ(job[r].step.step, 1u);
    EXPECT_EQ(job[r].step.rank, r);
  }
  Status finished[2] = {Internal("not returned"), Internal("not returned")};
  for (size_t r = 0; r < 2; ++r) job[r].Do([&, r] { finished[r] = job[r].job->Finish(); });
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.done; }));
  EXPECT_FALSE(job[0].Idle());
  Conductor(job.ranks).Finish(1);
  for (size_t r = 0; r < 2; ++r) {
    job[r].Wait();
    EXPECT_TRUE(finished[r].ok()) << finished[r].message();
  }
}

TEST(WorkerLoop, FinishBeforeTheEnd_IsAnError) {
  Running job(1, 5);
  job.On(0, [](TestWorker& w) { EXPECT_EQ(w.job->Finish().code(), Code::kInvalid); });
}

// Rank 1 dies after its last commit but before Finish; rank 0 is done and gives its state to the spare.
TEST(WorkerLoop, DoneWorker_ServesTheLastStateAndStaysInFinish) {
  Running job(2, 1, 1);
  for (size_t r = 0; r < 2; ++r) job.CommitAndNext(r);
  Status finished = Internal("not returned"), spare_finished = Internal("not returned");
  job[0].Do([&] { finished = job[0].job->Finish(); });
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.done; }));
  TestWorker& spare = job[2];
  Conductor next({job.ranks[0], spare.end.get()});
  next.Freeze(2);
  EXPECT_EQ(job[0].end->state.parked, Generation(2));
  next.Recover(2, 1, {1}, {next.PeerOf(0)});
  next.WaitVerified(2);
  next.Run(2);
  spare.Wait();
  EXPECT_EQ(spare.rc, 0);
  EXPECT_EQ(spare.step.rank, 1u);
  EXPECT_EQ(spare.state, job[0].state);
  EXPECT_FALSE(job[0].Idle());
  EXPECT_TRUE(job[0].end->state.done);
  spare.Do([&] { spare_finished = spare.job->Finish(); });
  next.Finish(2);
  spare.Wait();
  job[0].Wait();
  EXPECT_TRUE(finished.ok());
  EXPECT_TRUE(spare_finished.ok());
}

TEST(WorkerLoop, TakenBackFromTheLastState_FinishReturnsToTheLoop) {
  Running job(2, 1);
  job.CommitAndNext(0);
  Status finished;
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  job[0].Do([&] { finished = job[0].job->Finish(); });
  job[1].Do([w = &job[1]] { w->Next(); });
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.done; }));
  conductor.Recover(2, 0, {0}, {conductor.PeerOf(1)});
  conductor.WaitVerified(2);
  EXPECT_FALSE(job[0].end->state.done);
  conductor.Run(2);
  job[0].Wait();
  job[1].Wait();
  EXPECT_EQ(finished.code(), Code::kInterrupted);
  job.On(0, [](TestWorker& w) { w.Next(); });
  EXPECT_EQ(job[0].rc, 1);
  EXPECT_EQ(job[0].step.step, 0u);
  EXPECT_EQ(job[0].step.regrouped, 1u);
}

TEST(WorkerLoop, SpareAtTheEnd_LeavesTheLoopWithoutARank) {
  Running job(1, 1, 1);
  job[1].end->Send(EncodeOrder([&] {
    WorkerOrder order;
    order.worker = Incarnation(101);
    order.mode = Mode::kFinish;
    order.generation = Generation(1);
    return order;
  }()));
  job[1].Wait();
  EXPECT_EQ(job[1].rc, 0);
  EXPECT_EQ(job[1].step.rank, UINT32_MAX);
  job.On(1, [](TestWorker& w) { EXPECT_TRUE(w.job->Finish().ok()); });
}

TEST(WorkerLoop, Stop_EndsTheLoopHere) {
  Running job(1);
  job.CommitAndNext(0);
  job.On(0, [](TestWorker& w) {
    EXPECT_TRUE(w.job->StopHere().ok());
    w.Next();
  });
  EXPECT_EQ(job[0].rc, 0);
  EXPECT_EQ(job[0].step.step, 1u);
}

TEST(WorkerLoop, Broken_IsReportedAndParksUntilTheNextGeneration) {
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

TEST(WorkerLoop, Connected_IsReported) {
  Running job(1);
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->Connected().ok()); });
  EXPECT_TRUE(job[0].end->Wait(
      [&] { return job[0].end->state.connected == Generation(1) && job[0].end->state.connected_ns > 0; }));
}

TEST(WorkerLoop, Abort_IsCalledOnceAndOnlyOutsideNextStep) {
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

TEST(WorkerLoop, Resend_TellsANewAgentEverything) {
  Running job(1);
  job.CommitAndNext(0);
  const int readies = job[0].end->readies, states = job[0].end->states;
  job[0].end->Send(EncodeResend());
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->readies == readies + 1 && job[0].end->states > states; }));
  EXPECT_EQ(job[0].end->state.verified.generation, Generation(1));
  EXPECT_EQ(job[0].end->state.word.step, Step(1));
}

TEST(WorkerLoop, NodeGone_EveryWaitEndsWithAClearError) {
  Running job(1, 0, 1);
  job[1].end->socket.Reset();
  ASSERT_TRUE(job[0].end->Wait([&] { return job[1].Idle(); }));
  EXPECT_EQ(job[1].error.code(), Code::kUnavailable);
  EXPECT_NE(job[1].error.message().find("keeper and agent are gone"), std::string::npos);
}

TEST(WorkerLoop, Refused_NextStepSaysWhy) {
  Running job(1, 0, 1);
  WorkerOrder order;
  order.worker = Incarnation(101);
  order.refuse = "shard 'weights' has 10 bytes here and 20 on rank 0";
  job[1].end->Send(EncodeOrder(order));
  job[1].Wait();
  EXPECT_EQ(job[1].error.code(), Code::kRefused);
  EXPECT_EQ(job[1].error.message(), order.refuse);
}

TEST(WorkerLoop, NobodyReadsForAWhile_TheNewestReportArrives) {
  Running job(1);
  for (int i = 0; i < 3000; ++i) {
    job[0].Do([w = &job[0]] { EXPECT_TRUE(w->job->Connected().ok()); });
  }
  while (!job[0].Idle()) ::usleep(1000);
  job[0].Do([w = &job[0]] { EXPECT_TRUE(w->job->Broken("last").ok()); });
  EXPECT_TRUE(job[0].end->Wait([&] { return job[0].end->state.broken_why == "last"; }));
}

TEST(WorkerLoop, Store_GetWaitsForSetAndIsOverAtAFreeze) {
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
TEST(WorkerLoop, StoreHostFreezesFirst_WaitersAreInterrupted) {
  Running job(2);
  Result<std::string> got = Internal("");
  job[1].Do([&] { got = job[1].job->StoreGet("never", kPatience); });
  ::usleep(20'000);
  job[0].end->Send(EncodeOrder(Conductor(job.ranks).Order(0, Mode::kFreeze, 2)));
  job[1].Wait();
  EXPECT_EQ(got.status().code(), Code::kInterrupted);
}

TEST(WorkerLoop, NextStepWithoutCommitOrBroken_IsRefused) {
  Running job(1);
  job[0].Do([&] {
    locum_step step{};
    step.struct_size = sizeof step;
    const Result<int> again = job[0].job->NextStep(&step);
    EXPECT_EQ(again.status().code(), Code::kInvalid);
    EXPECT_NE(again.status().message().find("locum_broken"), std::string::npos);
    EXPECT_TRUE(job[0].job->BeginUpdate().ok());
    EXPECT_TRUE(job[0].job->EndUpdate().ok());
    const Result<int> next = job[0].job->NextStep(&step);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(step.step, 1u);
  });
  job[0].Wait();
}

TEST(WorkerLoop, StoreHostDies_IsReportedAsBroken) {
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

TEST(WorkerLoop, Echo_ComparesRandomBytesWithAPeer) {
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

TEST(WorkerLoop, StepLog_HasEveryStepWithItsTimesAndLossBits) {
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
