// Real workers (all their threads) led through generations by a fake node: the rules of freezing, pulling and
// resuming, each with the moment that could break it.
#include <cstring>

#include "adapters/tcp/tcp_socket.h"
#include "state/hash.h"
#include "worker/test_worker.h"

namespace locum::testing {
namespace {

TEST(Worker, FirstGeneration_RunsEveryRank) {
  Running job(2);
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(job[r].rc, 1);
    EXPECT_EQ(job[r].step.step, 0u);
    EXPECT_EQ(job[r].step.generation, 1u);
    EXPECT_EQ(job[r].step.rank, r);
    EXPECT_EQ(job[r].step.world_size, 2u);
    EXPECT_EQ(job[r].step.regrouped, 1u);
    EXPECT_EQ(job[r].step.data_position, r);
    EXPECT_EQ(job[r].end->page()->word.load(), (Word{Generation(1), Step(0), WordState::kOpen}.Pack()));
  }
  EXPECT_NE(job[0].step.seed, job[1].step.seed);
  EXPECT_EQ(job[0].end->info->layout_hash, job[1].end->info->layout_hash);
  EXPECT_NE(job[0].end->info->fingerprint.find("isa="), std::string::npos);
  EXPECT_NE(job[0].end->info->fingerprint.find("\ntest=1\n"), std::string::npos);
}

TEST(Worker, Steps_SendNoReportEach) {
  Running job(1);
  job.CommitAndNext(0);
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.first_commit == Generation(1); }));
  const int before = job[0].end->states;
  for (int i = 0; i < 50; ++i) job.CommitAndNext(0);
  EXPECT_EQ(job[0].step.step, 51u);
  EXPECT_EQ(job[0].step.regrouped, 0u);
  EXPECT_EQ(Word::Unpack(job[0].end->page()->word).step, Step(51));
  job[0].end->Pump();
  EXPECT_EQ(job[0].end->states, before);
}

TEST(Worker, FreezeWhileOpen_CommitFailsAndHoldingIsTheOldStep) {
  Running job(1);
  job.CommitAndNext(0);
  Conductor(job.ranks).Freeze(2);
  const WorkerState& state = job[0].end->state;
  EXPECT_TRUE(state.holding.valid);
  EXPECT_EQ(state.holding.generation, Generation(1));
  EXPECT_EQ(state.holding.step, Step(1));
  EXPECT_EQ(state.word.state, WordState::kFrozen);
  EXPECT_LT(state.parked, Generation(2));  // its thread is in the step
  const std::vector<uint8_t> before = job[0].state;
  job.On(0, [](TestWorker& w) { EXPECT_EQ(w.Commit().code(), Code::kInterrupted); });
  EXPECT_EQ(job[0].state, before);
  job[0].Do([w = &job[0]] { w->Next(); });
  EXPECT_TRUE(job[0].end->Wait([&] { return job[0].end->state.parked == Generation(2); }));
}

TEST(Worker, FreezeWhileUpdating_WaitsForTheUpdate) {
  Running job(1);
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->BeginUpdate().ok()); });
  const Conductor conductor(job.ranks);
  job[0].end->Send(EncodeOrder(conductor.Order(0, Mode::kFreeze, 2)));
  // A later message that is answered shows that the freeze was taken; it must not have been acknowledged.
  const int readies = job[0].end->readies;
  job[0].end->Send(EncodeResend());
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->readies > readies; }));
  EXPECT_EQ(job[0].end->state.frozen, Generation(1));
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->EndUpdate().ok()); });
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.frozen == Generation(2); }));
  EXPECT_TRUE(job[0].end->state.holding.valid);
  EXPECT_EQ(job[0].end->state.holding.step, Step(1));
}

TEST(Worker, FreezeWhileTorn_HoldsNothing) {
  Running job(1);
  job.On(0, [](TestWorker& w) {
    EXPECT_TRUE(w.job->BeginUpdate().ok());
    EXPECT_TRUE(w.job->FailUpdate("out of range").ok());
  });
  Conductor(job.ranks).Freeze(2);
  EXPECT_FALSE(job[0].end->state.holding.valid);
  EXPECT_EQ(job[0].end->state.word.state, WordState::kTorn);
  job.On(0, [](TestWorker& w) { w.Next(); });
  EXPECT_EQ(job[0].rc, -1);
  EXPECT_NE(job[0].error.message().find("out of range"), std::string::npos);
}

// Rank 1 is lost after it committed step 1; the spare takes its place from rank 0.
TEST(Worker, SparePullsInPlace_StateEqualsTheSource) {
  Running job(2, 0, 1);
  for (size_t r = 0; r < 2; ++r) job.CommitAndNext(r);
  TestWorker& spare = job[2];
  ASSERT_NE(spare.state, job[0].state);
  Conductor next({job.ranks[0], spare.end.get()});
  next.Freeze(2);
  EXPECT_EQ(spare.end->state.holding.generation, Generation(0));
  EXPECT_EQ(spare.end->state.parked, Generation(2));
  next.Recover(2, 1, {1}, {next.PeerOf(0)});
  next.WaitVerified(2);
  EXPECT_EQ(spare.end->state.verified.bytes, spare.state.size() + spare.small.size());
  EXPECT_EQ(spare.end->state.verified.source, Incarnation(100));
  EXPECT_EQ(spare.end->state.verified.retries, 0u);
  EXPECT_EQ(job[0].end->state.verified.bytes, 0u);
  // Nobody goes on before the order to run.
  EXPECT_FALSE(spare.Idle());
  EXPECT_EQ(Word::Unpack(spare.end->page()->word), (Word{Generation(2), Step(1), WordState::kFrozen}));
  job.On(0, [](TestWorker& w) { EXPECT_EQ(w.Commit().code(), Code::kInterrupted); });
  job[0].Do([w = &job[0]] { w->Next(); });
  next.Run(2);
  spare.Wait();
  job[0].Wait();
  EXPECT_EQ(spare.state, job[0].state);
  EXPECT_EQ(spare.small, job[0].small);
  for (TestWorker* w : {&job[0], &spare}) {
    EXPECT_EQ(w->rc, 1);
    EXPECT_EQ(w->step.step, 1u);
    EXPECT_EQ(w->step.generation, 2u);
    EXPECT_EQ(w->step.regrouped, 1u);
    EXPECT_EQ(w->step.state_hash, spare.end->state.verified.state_hash);
    EXPECT_NE(w->step.state_hash, 0u);
  }
  EXPECT_EQ(spare.step.rank, 1u);
}

TEST(Worker, PullInPlace_WaitsUntilTheTrainerIsParked) {
  Running job(2);
  job.CommitAndNext(0);  // rank 0 at 1, rank 1 at 0 and inside its step
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  const std::vector<uint8_t> before = job[1].state;
  conductor.Recover(2, 1, {1}, {conductor.PeerOf(0)});
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.verified.generation == Generation(2); }));
  // The mover waits: the state and the word are as they were.
  ::usleep(50'000);
  job[1].end->Pump();
  EXPECT_EQ(job[1].end->state.verified.generation, Generation(1));
  EXPECT_EQ(job[1].state, before);
  EXPECT_EQ(Word::Unpack(job[1].end->page()->word).state, WordState::kFrozen);
  for (size_t r = 0; r < 2; ++r) job[r].Do([w = &job[r]] { w->Next(); });
  conductor.WaitVerified(2);
  conductor.Run(2);
  for (size_t r = 0; r < 2; ++r) job[r].Wait();
  EXPECT_EQ(job[1].state, job[0].state);
}

TEST(Worker, StagedPull_KeepsTheOldStateUntilParked) {
  Running job(2);
  job.CommitAndNext(0);
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  const std::vector<uint8_t> before = job[1].state;
  conductor.Recover(2, 1, {1}, {conductor.PeerOf(0)}, true);
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.verified.generation == Generation(2); }));
  ::usleep(50'000);
  EXPECT_EQ(job[1].state, before);
  // Overtaken before it parked: the old copy is still a holding.
  conductor.Freeze(3);
  EXPECT_TRUE(job[1].end->state.holding.valid);
  EXPECT_EQ(job[1].end->state.holding.step, Step(0));
  conductor.Recover(3, 1, {1}, {conductor.PeerOf(0)}, true);
  for (size_t r = 0; r < 2; ++r) job[r].Do([w = &job[r]] { w->Next(); });
  conductor.WaitVerified(3);
  conductor.Run(3);
  for (size_t r = 0; r < 2; ++r) job[r].Wait();
  EXPECT_EQ(job[1].state, job[0].state);
  EXPECT_EQ(job[1].small, job[0].small);
}

// A source of the test's own: it answers one pull as told.
class BadSource {
 public:
  enum Fault { kCloses, kCorrupts, kStalls };
  BadSource(const TestWorker& like, Fault fault) : state_(like.state), fault_(fault) {
    Result<TcpListener> listener = TcpListener::Listen({"127.0.0.1", 0}, 4);
    listener_ = std::move(*listener);
    thread_ = std::thread([this] { Serve(); });
  }
  ~BadSource() {
    stop_.Set();
    thread_.join();
  }
  Peer peer() const { return {Rank(7), Incarnation(777), FormatAddress(listener_.address())}; }
  bool reached() const { return reached_; }
  int pulls() const { return pulls_; }
  bool released() const { return released_; }  // a stalled puller has gone

 private:
  void Serve() {
    while (!stop_.IsSet()) {
      Result<TcpSocket> socket = listener_.Accept();
      if (!socket->valid()) {
        ::usleep(1000);
        continue;
      }
      const Time deadline = TcpNow() + kPatience;
      std::string head(kRequestPrefixBytes, '\0');
      if (!socket->Receive(head.data(), head.size(), deadline, &stop_).ok()) continue;
      std::string body(*DecodeRequestPrefix(head), '\0');
      if (!socket->Receive(body.data(), body.size(), deadline, &stop_).ok()) continue;
      const DataRequest request = *DecodeRequestBody(body);
      (void)socket->Send(EncodeAnswer({}), deadline, &stop_);
      ++pulls_;
      // One good chunk, then the fault.
      SendChunk(*socket, request.first_chunk, false);
      reached_ = true;  // before what makes the other side give up, and the test look
      if (fault_ == kCorrupts) SendChunk(*socket, request.first_chunk + 1, true);
      if (fault_ == kStalls && socket->WaitReadable(deadline, &stop_).ok()) released_ = true;
    }
  }
  void SendChunk(TcpSocket& socket, uint64_t index, bool corrupt) {
    std::string bytes(reinterpret_cast<const char*>(state_.data()) + index * kChunkBytes, kChunkBytes);
    const std::string head = EncodeChunkHeader({index, kChunkBytes, Hash64(bytes)});
    if (corrupt) bytes[12345] ^= 1;
    (void)socket.Send(head.data(), head.size(), bytes.data(), bytes.size(), false, TcpNow() + kPatience, &stop_);
  }

  const std::vector<uint8_t> state_;
  const Fault fault_;
  TcpListener listener_;
  Cancel stop_;
  std::atomic<bool> reached_{false}, released_{false};
  std::atomic<int> pulls_{0};
  std::thread thread_;
};

void PullPastBadSource(BadSource::Fault fault) {
  Running job(2, 0, 1);
  for (size_t r = 0; r < 2; ++r) job.CommitAndNext(r);
  TestWorker& spare = job[2];
  BadSource bad(job[0], fault);
  Conductor next({job.ranks[0], spare.end.get()});
  next.Freeze(2);
  next.Recover(2, 1, {1}, {bad.peer(), next.PeerOf(0)});
  next.WaitVerified(2);
  EXPECT_TRUE(bad.reached());
  EXPECT_EQ(spare.end->state.verified.retries, 1u);
  EXPECT_EQ(spare.end->state.verified.source, Incarnation(100));
  job[0].Do([w = &job[0]] { w->Next(); });
  next.Run(2);
  spare.Wait();
  EXPECT_EQ(spare.state, job[0].state);
}

TEST(Worker, SourceDiesInMidTransfer_AnotherTakesOver) { PullPastBadSource(BadSource::kCloses); }
TEST(Worker, SourceSendsCorruptChunk_AnotherTakesOver) { PullPastBadSource(BadSource::kCorrupts); }

TEST(Worker, NoSourceLeft_SaysSoAndStaysTorn) {
  Running job(1, 0, 1);
  TestWorker& spare = job[1];
  Conductor next({job.ranks[0], spare.end.get()});
  next.Freeze(2);
  Peer nobody = next.PeerOf(0);
  nobody.worker = Incarnation(999);
  next.Recover(2, 0, {1}, {nobody});
  ASSERT_TRUE(spare.end->Wait([&] { return spare.end->state.cannot_pull == Generation(2); }));
  EXPECT_NE(spare.end->state.pull_error.find("wrong worker"), std::string::npos) << spare.end->state.pull_error;
  EXPECT_EQ(Word::Unpack(spare.end->page()->word).state, WordState::kTorn);
  // A better list of sources is tried at once.
  next.Recover(2, 0, {1}, {next.PeerOf(0)});
  next.WaitVerified(2);
  EXPECT_EQ(spare.end->state.cannot_pull, Generation(0));
}

TEST(Worker, NewerFreezeDuringPull_AbandonsItAndHoldsNothing) {
  Running job(1, 0, 1);
  job.CommitAndNext(0);
  TestWorker& spare = job[1];
  BadSource stalling(job[0], BadSource::kStalls);
  Conductor next({job.ranks[0], spare.end.get()});
  next.Freeze(2);
  next.Recover(2, 1, {1}, {stalling.peer()});
  ASSERT_TRUE(spare.end->Wait([&] { return stalling.reached(); }));
  next.Freeze(3);
  EXPECT_FALSE(spare.end->state.holding.valid);
  // The freeze itself ends the pull; it is not only the next order, or the stall, that does.
  ASSERT_TRUE(spare.end->Wait([&] { return stalling.released(); }));
  ::usleep(200'000);
  EXPECT_EQ(stalling.pulls(), 1);
  next.Recover(3, 1, {1}, {next.PeerOf(0)});
  next.WaitVerified(3);
  EXPECT_EQ(spare.end->state.verified.generation, Generation(3));
  EXPECT_EQ(spare.end->state.cannot_pull, Generation(0));
  next.Freeze(4);
  EXPECT_TRUE(spare.end->state.holding.valid);
  EXPECT_EQ(spare.end->state.holding.generation, Generation(3));
  EXPECT_EQ(spare.end->state.holding.step, Step(1));
}

TEST(Worker, RunWithoutVerifying_IsNotObeyed) {
  Running job(1);
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  conductor.Run(2);
  job[0].Do([w = &job[0]] { w->Next(); });
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.parked == Generation(2); }));
  ::usleep(20'000);
  EXPECT_FALSE(job[0].Idle());
  EXPECT_EQ(Word::Unpack(job[0].end->page()->word).state, WordState::kFrozen);
}

TEST(Worker, NotPullingAtAnotherStep_CannotVerify) {
  Running job(1);
  Conductor conductor(job.ranks);
  conductor.Freeze(2);
  conductor.Recover(2, 5);
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->state.cannot_pull == Generation(2); }));
  EXPECT_NE(job[0].end->state.pull_error.find("not at 5"), std::string::npos);
}

TEST(Worker, LateOrder_DoesNotReplaceOneThatIsStillPending) {
  Running job(1);
  Conductor conductor(job.ranks);
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->BeginUpdate().ok()); });
  job[0].end->Send(EncodeOrder(conductor.Order(0, Mode::kFreeze, 2)));
  conductor.Run(1);
  const int readies = job[0].end->readies;
  job[0].end->Send(EncodeResend());
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->readies > readies; }));
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->EndUpdate().ok()); });
  EXPECT_TRUE(job[0].end->Wait([&] { return job[0].end->state.frozen == Generation(2); }));
}

TEST(Worker, LateOrForeignOrder_IsIgnored) {
  Running job(1);
  Conductor conductor(job.ranks);
  WorkerOrder foreign = conductor.Order(0, Mode::kFreeze, 9);
  foreign.worker = Incarnation(4711);
  job[0].end->Send(EncodeOrder(foreign));
  job[0].end->Send(EncodeOrder(conductor.Order(0, Mode::kFreeze, 0)));
  const int readies = job[0].end->readies;
  job[0].end->Send(EncodeResend());
  ASSERT_TRUE(job[0].end->Wait([&] { return job[0].end->readies > readies; }));
  EXPECT_EQ(job[0].end->state.frozen, Generation(1));
  job.CommitAndNext(0);
  EXPECT_EQ(job[0].rc, 1);
}

}  // namespace
}  // namespace locum::testing
