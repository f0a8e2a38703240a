// Orders, freezing and reports. The trainer's side is in protocol_trainer.cc, the movers' in protocol_moving.cc.
#include "worker/protocol.h"

#include <bit>

#include "adapters/posix/monotonic.h"

namespace locum {

Protocol::Protocol(Page* page, Incarnation self, uint64_t total_steps, std::function<void()> poke_control,
                   std::function<void()> poke_port)
    : page_(page),
      self_(self),
      total_steps_(total_steps),
      poke_control_(std::move(poke_control)),
      poke_port_(std::move(poke_port)) {
  SetWord(Generation(0), Step(0), WordState::kOpen);
}

void Protocol::SetWord(Generation generation, Step step, WordState state) {
  page_->word.store(Word{generation, step, state}.Pack(), std::memory_order_seq_cst);
}

void Protocol::Changed() {
  dirty_ = true;
  ++changes_;
  changed_.notify_all();
  poke_control_();
}

bool Protocol::ready() {
  Lock lock(mu_);
  return ready_;
}

void Protocol::TakeOrder(const WorkerOrder& order) {
  Lock lock(mu_);
  // An order for another worker of this slot, or one that a newer generation has overtaken.
  if (order.worker != self_) return;
  if (order.mode != Mode::kIdle && order.generation < newest_) return;
  newest_ = std::max(newest_, order.generation);
  order_ = order;
  NoteDataAddresses(order);
  if (!order.refuse.empty()) Fail(Refused(order.refuse));
  ReconcileLocked();
  changed_.notify_all();  // stop_at in the page may have changed
}

void Protocol::NoteDataAddresses(const WorkerOrder& order) {
  if (order.mode == Mode::kRun) data_addresses_.clear();
  for (const std::vector<Peer>* peers : {&order.peers, &order.sources}) {
    for (const Peer& peer : *peers) data_addresses_.insert(peer.address);
  }
  if (order.echo_nonce != 0) data_addresses_.insert(order.echo_peer.address);
}

std::set<std::string> Protocol::DataAddresses() {
  Lock lock(mu_);
  return data_addresses_;
}

bool Protocol::Reconcile() {
  Lock lock(mu_);
  return ReconcileLocked();
}

// Compares what is ordered with what is, and does the next thing. Called whenever either changed.
bool Protocol::ReconcileLocked() {
  if (!ready_ || !order_ || leaving_ || !error_.ok()) return false;
  const WorkerOrder& order = *order_;
  const bool recovery = order.mode == Mode::kFreeze || order.mode == Mode::kRecover || order.mode == Mode::kRun;
  if (recovery && order.generation > report_.frozen && !Freeze(order.generation)) return true;
  const bool frozen = recovery && order.generation == report_.frozen;
  if (order.mode == Mode::kRecover && frozen) {
    // The trainer may write the state of a generation that it runs in.
    if (!run_ || run_->generation < order.generation) StartRecovery();
  } else if (order.mode == Mode::kRun && frozen && report_.verified.generation == order.generation &&
             (!run_ || run_->generation < order.generation) && !resume_) {
    if (order.world == 0 || order.rank.value >= order.world || order.peers.size() != order.world) {
      Fail(Internal("the order to run generation " + std::to_string(order.generation.value) +
                    " does not name every rank; do all parts have the same Locum version?"));
      return false;
    }
    resume_ = order;
    report_.rank = order.rank;
    Changed();
  } else if (order.mode == Mode::kFinish && !finished_) {
    finished_ = true;
    attention_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  const bool calm = order.mode == Mode::kIdle || order.mode == Mode::kRun;
  if (calm && order.echo_nonce != 0 && report_.echo.nonce != order.echo_nonce && !task_) {
    task_ = MoverTask{true, order, std::make_shared<Cancel>()};
    task_taken_ = false;
    changed_.notify_all();
  }
  return false;
}

// False while an update is under way; then nothing is reported yet.
bool Protocol::Freeze(Generation generation) {
  attention_.store(true, std::memory_order_release);
  resume_.reset();
  closed_ = false;
  EndRun();
  if (task_) task_->cancel->Set();
  changed_.notify_all();
  uint64_t bits = page_->word.load(std::memory_order_seq_cst);
  Word now = Word::Unpack(bits);
  while (now.state == WordState::kOpen) {
    Word frozen = now;
    frozen.state = WordState::kFrozen;
    if (page_->word.compare_exchange_strong(bits, frozen.Pack(), std::memory_order_seq_cst))
      now = frozen;
    else
      now = Word::Unpack(bits);
  }
  if (now.state == WordState::kUpdating) return false;
  report_.frozen = generation;
  if (run_ && run_frozen_since_ == kNever) run_frozen_since_ = MonotonicNow();
  report_.holding = {now.state == WordState::kFrozen, now.generation, now.step};
  if (parked_) report_.parked = generation;
  poke_port_();
  Changed();
  return true;
}

// The generation that the trainer is in has ended: whoever waits for others in it is told.
void Protocol::EndRun() {
  if (run_) run_->over.Set();
}

void Protocol::Fail(const Status& why) {
  if (!error_.ok()) return;
  error_ = why;
  report_.error = why.message();
  attention_.store(true, std::memory_order_release);
  if (task_) task_->cancel->Set();
  serve_cancel_->Set();
  EndRun();
  Changed();
}

void Protocol::NodeGone(const Status& why) {
  Lock lock(mu_);
  Fail(Unavailable("this node's keeper and agent are gone (" + why.message() + "); the worker must end"));
}

void Protocol::Leave() {
  Lock lock(mu_);
  leaving_ = true;
  if (task_) task_->cancel->Set();
  serve_cancel_->Set();
  EndRun();
  Changed();
}

std::optional<WorkerState> Protocol::TakeReport(bool always) {
  Lock lock(mu_);
  if (!ready_ || (!dirty_ && !always)) return std::nullopt;
  dirty_ = false;
  taken_ = changes_;
  WorkerState v = report_;
  v.word = word();
  v.position = static_cast<Position>(page_->position.load(std::memory_order_relaxed));
  v.starting = Step(page_->starting.load(std::memory_order_seq_cst) & kMaxStep);
  v.stop_at = Step(std::min(page_->stop_at.load(std::memory_order_seq_cst), kMaxStep));
  v.has_loss = page_->has_loss.load(std::memory_order_acquire) != 0;
  v.loss = std::bit_cast<double>(page_->loss_bits.load(std::memory_order_relaxed));
  return v;
}

void Protocol::ReportSent() {
  Lock lock(mu_);
  sent_ = taken_;
  changed_.notify_all();
}

void Protocol::TakeAbort(Generation generation) {
  Lock lock(mu_);
  // Once for each generation, and never for one that the trainer has left: a late abort would break the next one.
  if (!run_ || !abort_ || parked_ || generation < run_->generation || aborted_ >= run_->generation) return;
  aborted_ = run_->generation;
  abort_wanted_ = true;
  changed_.notify_all();
}

std::optional<Protocol::Straggler> Protocol::FindStraggler() {
  Lock lock(mu_);
  if (parked_ || leaving_ || run_frozen_since_ == kNever) return std::nullopt;
  return Straggler{run_->generation, run_frozen_since_, abort_ != nullptr};
}

bool Protocol::AwaitAbort(locum_abort_fn* abort, void** context) {
  Lock lock(mu_);
  while (true) {
    changed_.wait(lock, [&] { return abort_wanted_ || leaving_; });
    if (leaving_) return false;
    abort_wanted_ = false;
    if (parked_) continue;
    aborting_ = true;
    *abort = abort_;
    *context = abort_context_;
    return true;
  }
}

void Protocol::AbortDone() {
  Lock lock(mu_);
  aborting_ = false;
  changed_.notify_all();
}

}  // namespace locum
