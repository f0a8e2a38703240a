// The trainer of a simulated worker: src/worker/worker_steps.cc and protocol_trainer.cc, and the program around them.
#include <algorithm>
#include <utility>

#include "sim/watch.h"
#include "sim/worker.h"

namespace locum::sim {
namespace {

constexpr Duration Us(int64_t us) { return std::chrono::microseconds(us); }
constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration kConnectTimeout = std::chrono::seconds(10);  // of the program

}  // namespace

bool Worker::Last(Step step) const {
  return step.value >= world_->options.steps || (stop_step_ && step >= *stop_step_);
}

void Worker::NextStep() {
  if (first_commit_due_) {
    first_commit_due_ = false;
    report_.first_commit = run_->generation;
    report_.first_commit_ns = first_commit_ns_;
    Changed();
  }
  if (run_ && stop_next_ && word_.state == WordState::kOpen) {
    stop_next_ = false;
    stop_step_ = word_.step;
  }
  if (run_ && !Last(word_.step) && !attention_) {
    starting_ = word_.step;
    if (stop_at_ > word_.step && word_ == Word{run_->generation, word_.step, WordState::kOpen}) return StartStep(false);
  }
  at_ = At::kWaiting;
  TryTurn();
}

void Worker::TryTurn() {
  if (at_ != At::kWaiting || hung_) return;
  if (in_finish_) return TryFinish();
  if (Busy()) return Park();
  if (!error_.empty() || !torn_.empty()) {
    at_ = At::kGone;
    return LaterTrainer(Ms(1), [this] { Exit(1); });
  }
  if (!finished_) {
    if (resume_ && !TakeResume()) return Park();
    const bool can = run_ && !run_->over && word_.state == WordState::kOpen && report_.broken != run_->generation;
    if (!can) return Park();
    if (!Last(word_.step)) {
      if (!MayBegin(word_.step)) return Park();
      parked_ = false;
      return StartStep(std::exchange(regroup_due_, false));
    }
  }
  // The end: Finish.
  in_finish_ = true;
  report_.done = true;
  finish_step_ = word_.step;
  Park();
  Changed();
  TryFinish();
}

void Worker::TryFinish() {
  if (Busy()) return;
  if (finished_ || !error_.empty()) {
    at_ = At::kGone;
    return LaterTrainer(Ms(5), [this] { Exit(error_.empty() ? 0 : 1); });
  }
  if (resume_ && word_.step < *finish_step_) {
    in_finish_ = parked_ = false;
    finish_step_.reset();
    return NextStep();
  }
  if (resume_) TakeResume();
}

void Worker::Park() {
  if (parked_) return;
  parked_ = true;
  position_ = Position::kParked;
  const Generation here = run_ ? run_->generation : Generation(0);
  report_.parked = std::max(report_.parked, std::max(report_.frozen, here));
  Changed();
}

bool Worker::MayBegin(Step step) {
  if (stop_at_ <= step && parked_ && starting_ == step) return false;
  position_ = Position::kComputing;
  starting_ = step;
  if (stop_at_ > step) return true;
  position_ = Position::kParked;
  return false;
}

// Enters the generation that was ordered to run; false while somebody still reads the state.
bool Worker::TakeResume() {
  CloseServing();
  if (!serves_.empty()) return false;
  run_ = std::make_shared<Run>(Run{resume_->generation, resume_->rank, resume_->world, resume_->peers, false});
  if (stop_step_ && word_.step < *stop_step_) stop_step_.reset();
  if (gang_) gang_->Leave(this, machine(), "connection closed by peer");
  gang_ = world_->gangs.Of(run_->generation, run_->peers);
  run_frozen_ = committed_here_ = false;
  regroup_due_ = true;
  resume_.reset();
  report_.parked = std::max(report_.parked, run_->generation);
  world_->watch->Resumed(*this, run_->generation);
  SetWord(run_->generation, word_.step, WordState::kOpen);
  closed_ = attention_ = false;
  Changed();
  return true;
}

void Worker::StartStep(bool regrouped) {
  position_ = Position::kComputing;
  if (!regrouped) return Compute();
  at_ = At::kConnecting;
  LaterTrainer(Ms(1), [this] {
    if (run_->over) return Broken("the generation has ended");
    gang_->Enter(Gang::kConnect, std::static_pointer_cast<GangMember>(shared_from_this()));
    LaterTrainer(kConnectTimeout, [this] { Broken("cannot connect: timed out"); });
  });
}

void Worker::Compute() {
  at_ = At::kComputing;
  if (run_->rank == world_->failing_rank && word_.step == world_->failing_step) return Exit(3);
  if (std::exchange(hang_next_, false)) hung_ = true;
  LaterTrainer(world_->options.compute, [this] { EnterCollective(); });
}

void Worker::EnterCollective() {
  at_ = At::kInCollective;
  position_ = Position::kInCollective;
  if (run_->over) {
    if (!deaf_) LaterTrainer(Us(500), [this] { Broken("connection closed"); });
    return;
  }
  if (std::exchange(break_next_, false)) {
    return LaterTrainer(Us(500), [this] { Broken("connection reset by peer"); });
  }
  gang_->Enter(word_.step.value, std::static_pointer_cast<GangMember>(shared_from_this()));
}

void Worker::OnGang(const GangResult& result) {
  Do([this, result] {
    if (hung_ || !run_ || run_->generation != result.generation) return;
    if (at_ == At::kConnecting && result.round == Gang::kConnect) {
      if (!result.ok) return Broken(result.why);
      report_.connected = run_->generation;
      report_.connected_ns = world_->stage.now().ns;
      Changed();
      return Compute();
    }
    if (at_ != At::kInCollective || result.round != word_.step.value) return;
    if (!result.ok) {
      if (!deaf_) Broken(result.why);
      return;
    }
    // The update begins only if no freeze came before.
    if (word_ != Word{run_->generation, word_.step, WordState::kOpen}) return NextStep();
    world_->watch->Updating(*this, run_->generation);
    Update();
  });
}

void Worker::Broken(const std::string& why) {
  if (report_.broken != run_->generation) {
    report_.broken = run_->generation;
    report_.broken_step = word_.step;
    report_.broken_why = why;
  }
  attention_ = true;
  if (gang_) gang_->Leave(this, machine(), "connection closed by peer");
  Changed();
  if (!deaf_) NextStep();  // else it has told, and hangs in taking its group down
}

// Chunk by chunk, so that whoever looks meanwhile sees half of it.
void Worker::Update() {
  at_ = At::kUpdating;
  word_.state = WordState::kUpdating;
  WriteChunk(0);
}

void Worker::WriteChunk(size_t chunk) {
  if (chunk == kChunks / 2 && std::exchange(tear_next_, false)) return Torn();
  if (chunk == kChunks) return EndUpdate();
  LaterTrainer(world_->options.update / static_cast<int64_t>(kChunks), [this, chunk] {
    content_[chunk] = Watch::Updated(content_[chunk], word_.step);
    WriteChunk(chunk + 1);
  });
}

void Worker::EndUpdate() {
  SetWord(run_->generation, word_.step.Next(), WordState::kOpen);
  if (!committed_here_) {
    committed_here_ = first_commit_due_ = true;
    first_commit_ns_ = world_->stage.now().ns;
  }
  world_->watch->Committed(*this, run_->generation);
  NextStep();
}

// The reason is sent before the page says torn.
void Worker::Torn() {
  torn_ = report_.error = "an update failed half-way, the state is torn and this worker must end";
  attention_ = true;
  Changed();
  LaterTrainer(Ms(1), [this] {
    word_.state = WordState::kTorn;
    Changed();
    NextStep();
  });
}

}  // namespace locum::sim
