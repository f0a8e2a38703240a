// The trainer's side of the protocol: parking, resuming, finishing.
#include <utility>

#include "adapters/posix/monotonic.h"
#include "worker/protocol.h"

namespace locum {

void Protocol::Ready(const RegisteredState* state) {
  Lock lock(mu_);
  state_ = state;
  layout_hash_ = state->layout().Hash();
  ready_ = true;
  ReconcileLocked();
  Changed();
}

bool Protocol::Last(Step step) const {
  return (total_steps_ != 0 && step.value >= total_steps_) || (stop_step_ && step >= *stop_step_);
}

void Protocol::Park() {
  if (parked_) return;
  parked_ = true;
  page_->position.store(static_cast<uint32_t>(Position::kParked), std::memory_order_relaxed);
  page_->position_ns.store(MonotonicNow().ns, std::memory_order_relaxed);
  const Generation here = run_ ? run_->generation : Generation(0);
  report_.parked = std::max(report_.parked, std::max(report_.frozen, here));
  Changed();
}

void Protocol::Unpark() { parked_ = false; }

Result<Turn> Protocol::NextTurn() {
  Lock lock(mu_);
  while (true) {
    if (std::optional<Result<Turn>> turn = Decide()) {
      Unpark();
      return std::move(*turn);
    }
    Park();
    changed_.wait(lock);
  }
}

// Empty: wait on.
std::optional<Result<Turn>> Protocol::Decide() {
  if (Busy()) return std::nullopt;
  if (!error_.ok()) return Result<Turn>(error_);
  if (!torn_.ok()) return Result<Turn>(torn_);
  if (leaving_) return Result<Turn>(Invalid("the job was left"));
  if (finished_) return Result<Turn>(Turn{Turn::kLast, word().step, nullptr});
  if (resume_ && !TakeResume()) return std::nullopt;
  const Word now = word();
  if (!run_ || run_->over.IsSet() || now.state != WordState::kOpen || report_.broken == run_->generation) {
    return std::nullopt;
  }
  if (!Last(now.step) && !MayBegin(now.step)) return std::nullopt;
  Turn turn{Last(now.step) ? Turn::kLast : Turn::kGo, now.step, nullptr};
  if (std::exchange(regroup_due_, false)) {
    turn.run = run_;
    if (turn.kind == Turn::kGo) turn.kind = Turn::kRegrouped;
  }
  return Result<Turn>(turn);
}

// A planned stop: `starting` is stored before `stop_at` is read, so that a stop is seen by one side or the other. Whoever
// reads `starting` and then `position` must not take a trainer that goes on for one that is parked, so the position is
// changed first; and not at all while the stop is plainly there, so that one that is parked does not seem to move.
bool Protocol::MayBegin(Step step) {
  if (page_->stop_at.load(std::memory_order_seq_cst) <= step.value && parked_ &&
      page_->starting.load(std::memory_order_seq_cst) == step.value) {
    return false;
  }
  page_->position.store(static_cast<uint32_t>(Position::kComputing), std::memory_order_seq_cst);
  page_->starting.store(step.value, std::memory_order_seq_cst);
  if (page_->stop_at.load(std::memory_order_seq_cst) > step.value) return true;
  page_->position.store(static_cast<uint32_t>(Position::kParked), std::memory_order_seq_cst);
  return false;
}

// Enters the generation that was ordered to run; false while somebody still reads the state.
bool Protocol::TakeResume() {
  CloseServing();
  if (serving_ > 0) return false;
  auto run = std::make_shared<RunInfo>();
  run->generation = resume_->generation;
  run->step = resume_->recovery_step;
  run->rank = resume_->rank;
  run->world = resume_->world;
  run->store_host = resume_->peers[0];
  LOCUM_CHECK(word().state == WordState::kFrozen);
  // The state is the verified one, whatever the order to run repeats of it.
  run->step = word().step;
  run->state_hash = report_.verified.state_hash;
  run->pulled_ns = std::exchange(pulled_ns_, 0);
  if (stop_step_ && run->step < *stop_step_) stop_step_.reset();
  hashes_.reset();
  run_ = run;
  run_frozen_since_ = kNever;
  regroup_due_ = true;
  resume_.reset();
  // The trainer's thread is here, whether it had to wait or not.
  report_.parked = std::max(report_.parked, run->generation);
  SetWord(run->generation, run->step, WordState::kOpen);
  closed_ = false;
  attention_.store(false, std::memory_order_release);
  Changed();
  return true;
}

Status Protocol::Finish() {
  Lock lock(mu_);
  report_.done = true;
  const Step last = word().step;
  finish_step_ = last;
  Park();
  Status result;
  while (true) {
    if (!Busy()) {
      if (finished_) break;
      if (!error_.ok()) {
        result = error_;
        break;
      }
      if (resume_ && word().step < last) {
        result = Interrupted("a recovery took the job back from state " + std::to_string(last.value) + " to " +
                             std::to_string(word().step.value) + "; go on with the step loop");
        break;
      }
      // The others of the new generation are done too, or read the last state from here.
      if (resume_) TakeResume();
    }
    changed_.wait(lock);
  }
  Unpark();
  finish_step_.reset();
  return result;
}

void Protocol::Connected(Generation generation, int64_t when_ns) {
  Lock lock(mu_);
  report_.connected = generation;
  report_.connected_ns = when_ns;
  Changed();
}

void Protocol::FirstCommit(Generation generation, int64_t when_ns) {
  Lock lock(mu_);
  report_.first_commit = generation;
  report_.first_commit_ns = when_ns;
  Changed();
}

void Protocol::Broken(Generation generation, Step step, const std::string& why) {
  Lock lock(mu_);
  if (report_.broken == generation) return;  // the first reason is the cause
  report_.broken = generation;
  report_.broken_step = step;
  report_.broken_why = why.substr(0, 1024);
  attention_.store(true, std::memory_order_release);
  Changed();
}

void Protocol::StopAt(Step step) {
  Lock lock(mu_);
  stop_step_ = step;
}

void Protocol::Torn(const std::string& why) {
  Lock lock(mu_);
  // The node may still ask what this worker holds, so orders go on being taken; the trainer ends.
  torn_ = Internal("an update failed half-way, the state is torn and this worker must end: " + why.substr(0, 1024));
  report_.error = torn_.message();
  attention_.store(true, std::memory_order_release);
  Changed();
  // The reason first: whoever reads the page finds a torn state only when its cause is on its way, and a program that
  // ends now has told it.
  const uint64_t mine = changes_;
  changed_.wait_for(lock, kTornPatience, [&] { return sent_ >= mine || !error_.ok() || leaving_; });
  const Word now = word();
  LOCUM_CHECK(now.state == WordState::kUpdating);
  SetWord(now.generation, now.step, WordState::kTorn);
  Changed();
}

void Protocol::SetAbort(locum_abort_fn abort, void* context) {
  Lock lock(mu_);
  abort_ = abort;
  abort_context_ = context;
}

std::shared_ptr<RunInfo> Protocol::CurrentRun() {
  Lock lock(mu_);
  return run_;
}

}  // namespace locum
