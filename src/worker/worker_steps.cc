// The trainer's calls. From NextStep to NextStep nothing here makes a system call, unless something happened: a
// recovery, a stop, the first commit of a generation, a step log that must grow.
#include <unistd.h>

#include <bit>

#include "adapters/posix/monotonic.h"
#include "base/random.h"
#include "worker/worker_job.h"

namespace locum {

uint64_t StepSeed(uint64_t job_seed, Step step, Rank rank) {
  return Mix64(Mix64(Mix64(job_seed + 0x9e3779b97f4a7c15ull) ^ step.value) +
               0x9e3779b97f4a7c15ull * (rank.value + 1ull));
}

void WorkerJob::SetPosition(Position position, int64_t now_ns) {
  page_->position.store(static_cast<uint32_t>(position), std::memory_order_relaxed);
  page_->position_ns.store(now_ns, std::memory_order_relaxed);
}

Result<int> WorkerJob::NextStep(locum_step* step) {
  if (in_update_) return Invalid("locum_next_step between locum_begin_update and locum_end_update");
  if (in_step_ && !protocol_->attention() &&
      page_->word.load(std::memory_order_acquire) == Word{run_->generation, step_, WordState::kOpen}.Pack()) {
    return Invalid("locum_next_step before step " + std::to_string(step_.value) +
                   " was committed (locum_begin_update, locum_end_update) or reported broken (locum_broken)");
  }
  in_step_ = false;
  record_ = nullptr;
  if (!ready_) LOCUM_RETURN_IF_ERROR(BecomeReady());
  if (first_commit_due_) {
    first_commit_due_ = false;
    protocol_->FirstCommit(run_->generation, first_commit_ns_);
    group_->Connected();  // it has committed, so it is, said or not
  }
  bool regrouped = false;
  // The word is looked at first: a freeze that comes after it is met by the next BeginUpdate.
  const bool last = (total_steps_ != 0 && step_.value >= total_steps_) || stopped_;
  bool go = run_ && !last && !protocol_->attention();
  if (go) {
    page_->starting.store(step_.value, std::memory_order_seq_cst);
    go = page_->stop_at.load(std::memory_order_seq_cst) > step_.value &&
         page_->word.load(std::memory_order_acquire) == Word{run_->generation, step_, WordState::kOpen}.Pack();
  }
  if (!go) {
    Result<Turn> turn = protocol_->NextTurn();
    if (!turn.ok()) return turn.status();
    step_ = turn->step;
    if (turn->run) {
      run_ = turn->run;
      regrouped = true;
      stopped_ = false;
      committed_here_ = false;
      group_->Begin(run_->generation);
      RecordPulled();
    }
    if (turn->kind == Turn::kLast) {
      at_end_ = true;
      DescribeStep(step);
      return 0;
    }
  }
  StartStep(step);
  step->regrouped = regrouped ? 1 : 0;
  step->state_hash = regrouped ? run_->state_hash : 0;
  return 1;
}

void WorkerJob::DescribeStep(locum_step* step) const {
  const size_t size = step->struct_size;
  *step = locum_step{};
  step->struct_size = size;
  step->step = step_.value;
  step->rank = kNoRank.value;
  if (!run_) return;
  step->generation = run_->generation.value;
  step->rank = run_->rank.value;
  step->world_size = run_->world;
  step->seed = StepSeed(joined_.welcome.seed, step_, run_->rank);
  step->data_position = step_.value * run_->world + run_->rank.value;
}

void WorkerJob::StartStep(locum_step* step) {
  at_end_ = false;
  in_step_ = true;
  const int64_t now = MonotonicNow().ns;
  SetPosition(Position::kComputing, now);
  DescribeStep(step);
  if (step_log_->WantsGrowth() && now >= grow_not_before_ns_.load(std::memory_order_relaxed) &&
      !grow_step_log_.exchange(true, std::memory_order_acq_rel)) {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(wake_.get(), &one, sizeof one);
  }
  record_ = NewRecord(kStepRecordStep, step_, now);
}

// Null when the disk is full.
StepRecord* WorkerJob::NewRecord(uint32_t kind, Step step, int64_t now_ns) {
  auto* record = static_cast<StepRecord*>(step_log_->Next());
  if (record) {
    record->rank = run_->rank.value;
    record->step = step.value;
    record->generation = run_->generation.value;
    record->entered_ns = now_ns;
    std::atomic_ref<uint32_t>(record->kind).store(kind, std::memory_order_release);
  } else if (uint8_t* head = step_log_->head()) {
    std::atomic_ref<uint64_t>(reinterpret_cast<StepLogHeader*>(head)->dropped).store(step_log_->dropped());
  }
  return record;
}

// The result of the step before came from another rank: that is how this rank made that step.
void WorkerJob::RecordPulled() {
  if (run_->pulled_ns != 0 && step_ > Step(0)) NewRecord(kStepRecordPulled, Step(step_.value - 1), run_->pulled_ns);
}

Status WorkerJob::Connected() {
  if (!in_step_) return Invalid("locum_connected outside a step");
  const int64_t now = MonotonicNow().ns;
  if (record_) record_->connected_ns = now;
  group_->Connected();
  protocol_->Connected(run_->generation, now);
  return OkStatus();
}

Status WorkerJob::ReportLoss(double loss) {
  if (!in_step_) return Invalid("locum_report_loss outside a step");
  const uint64_t bits = std::bit_cast<uint64_t>(loss);
  if (record_) record_->loss_bits = bits;
  page_->loss_bits.store(bits, std::memory_order_relaxed);
  page_->has_loss.store(1, std::memory_order_release);
  return OkStatus();
}

Status WorkerJob::EnterCollective() {
  if (!in_step_) return Invalid("locum_enter_collective outside a step");
  const int64_t now = MonotonicNow().ns;
  if (record_ && record_->collective_ns == 0) record_->collective_ns = now;
  SetPosition(Position::kInCollective, now);
  return OkStatus();
}

Status WorkerJob::Broken(const std::string& why) {
  if (!in_step_) return Invalid("locum_broken outside a step");
  if (in_update_) return Invalid("locum_broken between locum_begin_update and locum_end_update");
  in_step_ = false;
  protocol_->Broken(run_->generation, step_, why);
  return OkStatus();
}

Status WorkerJob::BeginUpdate() {
  if (!in_step_ || in_update_) return Invalid("locum_begin_update without a step to update");
  uint64_t expected = Word{run_->generation, step_, WordState::kOpen}.Pack();
  const uint64_t updating = Word{run_->generation, step_, WordState::kUpdating}.Pack();
  if (!page_->word.compare_exchange_strong(expected, updating, std::memory_order_seq_cst)) {
    in_step_ = false;
    return Interrupted("a recovery has frozen state " + std::to_string(step_.value) + "; leave the step");
  }
  in_update_ = true;
  return OkStatus();
}

Status WorkerJob::EndUpdate() {
  if (!in_update_) return Invalid("locum_end_update without locum_begin_update");
  step_ = step_.Next();
  page_->word.store(Word{run_->generation, step_, WordState::kOpen}.Pack(), std::memory_order_seq_cst);
  const int64_t now = MonotonicNow().ns;
  if (record_) std::atomic_ref<int64_t>(record_->committed_ns).store(now, std::memory_order_release);
  if (!committed_here_) {
    committed_here_ = true;
    first_commit_due_ = true;
    first_commit_ns_ = now;
  }
  in_update_ = false;
  in_step_ = false;
  return OkStatus();
}

Status WorkerJob::FailUpdate(const std::string& why) {
  if (!in_update_) return Invalid("locum_fail_update without locum_begin_update");
  in_update_ = false;
  in_step_ = false;
  protocol_->Torn(why);
  return OkStatus();
}

Status WorkerJob::StopHere() {
  if (!run_ || in_update_) return Invalid("locum_stop before the first step or inside an update");
  stopped_ = true;
  in_step_ = false;
  protocol_->StopAt(step_);
  return OkStatus();
}

Status WorkerJob::Finish() {
  if (!at_end_) return Invalid("locum_finish before locum_next_step has returned 0");
  return protocol_->Finish();
}

Status WorkerJob::StoreFailed(const RunInfo& run, const Status& why) {
  if (why.code() == Code::kInvalid || why.code() == Code::kTimeout) return why;
  if (why.code() == Code::kInterrupted || run.over.IsSet()) {
    return Interrupted("a recovery has ended generation " + std::to_string(run.generation.value));
  }
  // Who hosts the store is a rank of this generation: without it the generation cannot go on.
  const std::string text = "the store of rank " + std::to_string(run.store_host.rank.value) + ": " + why.message();
  protocol_->Broken(run.generation, run.step, text);
  return Interrupted(text);
}

Status WorkerJob::StoreSet(const std::string& key, const std::string& value) {
  const std::shared_ptr<RunInfo> run = protocol_->CurrentRun();
  if (!run) return Invalid("the store can be used from the first step on");
  if (run->over.IsSet()) return StoreFailed(*run, Interrupted(""));
  const Status status = store_->Set(run, key, value);
  return status.ok() ? status : StoreFailed(*run, status);
}

Result<std::string> WorkerJob::StoreGet(const std::string& key, Duration timeout) {
  const std::shared_ptr<RunInfo> run = protocol_->CurrentRun();
  if (!run) return Invalid("the store can be used from the first step on");
  if (run->over.IsSet()) return StoreFailed(*run, Interrupted(""));
  Result<std::string> value = store_->Get(run, key, timeout);
  if (value.ok()) return value;
  return StoreFailed(*run, value.status());
}

}  // namespace locum
