// The step loop: where it stops, parks and goes on, and how it ends.
#include <unistd.h>

#include "worker/test_worker.h"

namespace locum::testing {
namespace {

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

}  // namespace
}  // namespace locum::testing
