// The movers' and servers' side of the protocol: who may read or overwrite the state, and when.
#include "worker/protocol.h"

namespace locum {

// Begins the recovery that is ordered, unless it was begun already. One attempt at a time: a running one that is
// not wanted any more is cancelled first.
void Protocol::StartRecovery() {
  const WorkerOrder& order = *order_;
  if (attempted_) {
    const bool same = attempted_->generation == order.generation && attempted_->recovery_step == order.recovery_step &&
                      attempted_->pull == order.pull && attempted_->staged == order.staged;
    if (same && !(attempt_failed_ && attempted_->sources != order.sources)) return;
  }
  resume_.reset();  // what it was verified for is not wanted any more
  if (task_) {
    task_->cancel->Set();
    changed_.notify_all();
    return;
  }
  attempted_ = order;
  attempt_failed_ = false;
  report_.rank = order.rank;
  report_.verified = {};
  report_.cannot_pull = Generation(0);
  report_.pull_error.clear();
  // Who is taken back from the last state has not finished.
  if (order.recovery_step != word().step) report_.done = false;
  task_ = MoverTask{false, order, std::make_shared<Cancel>()};
  task_taken_ = false;
  changed_.notify_all();
}

// Nobody begins to read the state any more, and who reads it is told to stop.
void Protocol::CloseServing() {
  if (closed_) return;
  closed_ = true;
  serve_cancel_->Set();
  serve_cancel_ = std::make_shared<Cancel>();
}

std::optional<MoverTask> Protocol::AwaitTask() {
  Lock lock(mu_);
  changed_.wait(lock, [&] { return leaving_ || (task_ && !task_taken_); });
  if (leaving_) return std::nullopt;
  task_taken_ = true;
  return task_;
}

void Protocol::TaskDone() {
  Lock lock(mu_);
  // A recovery that was cancelled was not attempted: the same order may start it again.
  if (!task_->echo && task_->cancel->IsSet()) attempted_.reset();
  task_.reset();
  ReconcileLocked();
  changed_.notify_all();
  poke_control_();
}

std::shared_ptr<ChunkHashes> Protocol::Hashes() {
  Lock lock(mu_);
  if (!hashes_) hashes_ = std::make_shared<ChunkHashes>(state_->layout().chunk_count());
  return hashes_;
}

std::vector<Peer> Protocol::Sources(const MoverTask& task) {
  Lock lock(mu_);
  if (order_ && order_->mode == Mode::kRecover && order_->generation == task.order.generation) return order_->sources;
  return task.order.sources;
}

Status Protocol::BeginOverwrite(const MoverTask& task) {
  Lock lock(mu_);
  CloseServing();
  changed_.wait(lock, [&] { return task.cancel->IsSet() || leaving_ || (parked_ && serving_ == 0 && !aborting_); });
  closed_ = false;
  if (task.cancel->IsSet() || leaving_) return Interrupted("the recovery was superseded");
  overwriting_ = true;
  hashes_.reset();
  const Word now = word();
  LOCUM_CHECK(now.state == WordState::kFrozen || now.state == WordState::kTorn);
  SetWord(now.generation, now.step, WordState::kTorn);
  return OkStatus();
}

void Protocol::EndOverwrite(const MoverTask& task, std::shared_ptr<ChunkHashes> hashes) {
  Lock lock(mu_);
  overwriting_ = false;
  if (hashes) {
    hashes_ = std::move(hashes);
    SetWord(task.order.generation, task.order.recovery_step, WordState::kFrozen);
  }
  changed_.notify_all();
}

void Protocol::Verified(const MoverTask& task, const locum::Verified& verified) {
  Lock lock(mu_);
  if (task.cancel->IsSet() || task.order.generation != report_.frozen) return;
  // From here on this copy belongs to the lineage that the recovery chose.
  const Word now = word();
  LOCUM_CHECK(now.state == WordState::kFrozen && now.step == verified.step);
  SetWord(task.order.generation, now.step, WordState::kFrozen);
  report_.verified = verified;
  if (verified.bytes > 0) pulled_ns_ = verified.end_ns;
  if (finish_step_ && now.step >= *finish_step_) report_.done = true;
  Changed();
}

void Protocol::CannotPull(const MoverTask& task, const std::string& why) {
  Lock lock(mu_);
  if (task.cancel->IsSet() || task.order.generation != report_.frozen) return;
  attempt_failed_ = true;
  report_.cannot_pull = task.order.generation;
  report_.pull_error = why.substr(0, 2048);
  Changed();
}

void Protocol::Echoed(const MoverTask& task, const Echo& echo) {
  Lock lock(mu_);
  if (task.cancel->IsSet()) return;
  report_.echo = echo;
  Changed();
}

Result<Protocol::Ticket> Protocol::BeginServe(const DataRequest& request) {
  Lock lock(mu_);
  if (!ready_) return Unavailable("this worker has not registered its state yet");
  if (request.layout_hash != layout_hash_) return Refused("the registered shards differ from this worker's");
  const uint64_t chunks = state_->layout().chunk_count();
  if (request.first_chunk > chunks || request.chunk_count > chunks - request.first_chunk) {
    return Refused("the state has only " + std::to_string(chunks) + " chunks");
  }
  const Word now = word();
  if (closed_ || leaving_ || !error_.ok() || overwriting_ || now.state != WordState::kFrozen ||
      now.step != request.step || report_.frozen != request.generation) {
    return Unavailable("asked for state " + std::to_string(request.step.value) + " in generation " +
                       std::to_string(request.generation.value) + ", this worker is " + WordStateName(now.state) +
                       " at state " + std::to_string(now.step.value) + " and froze for generation " +
                       std::to_string(report_.frozen.value));
  }
  if (!hashes_) hashes_ = std::make_shared<ChunkHashes>(chunks);
  ++serving_;
  return Ticket{serve_cancel_, hashes_};
}

void Protocol::EndServe() {
  Lock lock(mu_);
  --serving_;
  changed_.notify_all();
}

Generation Protocol::StoreGeneration() {
  Lock lock(mu_);
  return std::max(report_.frozen, run_ ? run_->generation : Generation(0));
}

}  // namespace locum
