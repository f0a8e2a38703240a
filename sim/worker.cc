// The process of a simulated worker, and the control thread of its library.
#include "sim/worker.h"

#include <algorithm>
#include <utility>

#include "sim/node.h"
#include "sim/watch.h"

namespace locum::sim {
namespace {

constexpr Duration Us(int64_t us) { return std::chrono::microseconds(us); }
constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration kThread = Us(20);       // one thread wakes another
constexpr Duration kLocal = Us(30);        // over a socket of one machine
constexpr Duration kUpdatePoll = Us(200);  // src/worker/protocol.h
constexpr Duration kAbortMoment = Ms(100);

JoinInfo InfoOf(const World& world) {
  JoinInfo info;
  info.protocol = kProtocolVersion;
  info.library = kVersion;
  info.fingerprint = "isa=sim\n";
  info.shards = {{"state", kChunks * sizeof(uint64_t), "all"}};
  info.layout_hash = 7;
  info.total_steps = world.options.steps;
  info.data_address = "10.0.0.1:1";
  return info;
}

}  // namespace

Worker::Worker(World* world, Node* node, Slot place, Incarnation number, int32_t process)
    : slot(place), id(number), pid(process), world_(world), node_(node), to_agent_(&world->stage) {}

Machine Worker::machine() const { return node_->number(); }

const std::vector<Peer>& Worker::peers() const {
  static const std::vector<Peer> kNone;
  return run_ ? run_->peers : kNone;
}

// ---- The process ---------------------------------------------------------------------------------------------

void Worker::Do(std::function<void()> what) {
  if (!alive_ || stuck_) return;
  if (asleep_) {
    backlog_.push_back(std::move(what));
  } else {
    what();
  }
}

void Worker::Later(Duration mean, std::function<void()> what) {
  world_->stage.After(world_->stage.Delay(mean),
                      [self = shared_from_this(), what = std::move(what)]() mutable { self->Do(std::move(what)); });
}

void Worker::LaterTrainer(Duration mean, std::function<void()> what) {
  Later(mean, [this, activity = ++activity_, what = std::move(what)] {
    if (activity_ == activity && !hung_) what();
  });
}

void Worker::Begin() {
  if (world_->all_deaf) deaf_ = true;
  content_ = world_->watch->Reference(Step(0));
  Later(world_->options.start, [this] { node_->JoinAskedBy(shared_from_this()); });
}

void Worker::Admitted() {
  Do([this] {
    joined_ = true;
    Later(Ms(1), [this] {
      ready_ = true;
      SendReady();
      Reconcile();
      Changed();
      NextStep();
    });
  });
}

void Worker::End(ProcessEnd end) {
  if (!alive_) return;
  alive_ = false;
  at_ = At::kGone;
  backlog_.clear();
  when_free_ = nullptr;
  for (const auto& serve : std::exchange(serves_, {})) serve->ended = true;
  if (gang_) std::exchange(gang_, nullptr)->Leave(this, machine(), "connection reset by peer");
  world_->watch->Ended(*this);
  node_->ProcessEnded(shared_from_this(), end);
  world_->workers.erase(id);
}

void Worker::Sleep() { asleep_ = true; }

void Worker::Wake() {
  if (stuck_) return;
  asleep_ = false;
  for (auto& what : std::exchange(backlog_, {})) Do(std::move(what));
}

void Worker::Stick() { stuck_ = asleep_ = true; }

void Worker::Hang() {
  const bool own_code = at_ == At::kComputing || at_ == At::kInCollective || at_ == At::kConnecting;
  (own_code ? hung_ : hang_next_) = true;
}

void Worker::Spoil() {
  content_[0] ^= 0x55;
  spoiled_ = true;
}

bool Worker::ExitInStep(int status) {
  if (at_ != At::kComputing || asleep_) return false;
  Exit(status);
  return true;
}

void Worker::Exit(int status) { End({status, 0}); }

PageReading Worker::Read() const {
  PageReading page;
  page.worker = id;
  page.word = word_;
  page.position = position_;
  page.stop_at = stop_at_;
  page.starting = starting_;
  return page;
}

PageReading Worker::StoreStop(Step stop_at) {
  stop_at_ = stop_at;
  Do([this] { Notify(); });
  return Read();
}

// ---- Control -------------------------------------------------------------------------------------------------

void Worker::TakeOrder(const WorkerOrder& order) {
  Do([this, order] {
    if (order.worker != id) return;
    if (order.mode != Mode::kIdle && order.generation < newest_) return;
    newest_ = std::max(newest_, order.generation);
    order_ = order;
    if (!order.refuse.empty()) Fail(order.refuse);
    Reconcile();
    Notify();
  });
}

// Compares what is ordered with what is, and does the next thing.
void Worker::Reconcile() {
  if (!ready_ || !order_ || !error_.empty()) return;
  const WorkerOrder& order = *order_;
  const bool recovery = order.mode == Mode::kFreeze || order.mode == Mode::kRecover || order.mode == Mode::kRun;
  if (recovery && order.generation > report_.frozen && !Freeze(order.generation)) {
    return Later(kUpdatePoll, [this] { Reconcile(); });
  }
  const bool frozen = recovery && order.generation == report_.frozen;
  if (order.mode == Mode::kRecover && frozen) {
    StartRecovery();
  } else if (order.mode == Mode::kRun && frozen && report_.verified.generation == order.generation &&
             (!run_ || run_->generation < order.generation) && !resume_) {
    resume_ = order;
    report_.rank = order.rank;
    Changed();
  } else if (order.mode == Mode::kFinish && !finished_) {
    finished_ = attention_ = true;
    Notify();
  }
  const bool calm = order.mode == Mode::kIdle || order.mode == Mode::kRun;
  if (calm && order.echo_nonce != 0 && report_.echo.nonce != order.echo_nonce && !task_) {
    task_ = std::make_shared<Task>(Task{order, true});
    Later(kThread, [this, task = task_] { RunTask(task); });
  }
}

// False while an update is under way.
bool Worker::Freeze(Generation generation) {
  attention_ = true;
  resume_.reset();
  closed_ = false;
  EndRun();
  if (task_) task_->cancelled = true;
  Notify();
  if (word_.state == WordState::kOpen) word_.state = WordState::kFrozen;
  if (word_.state == WordState::kUpdating) return false;
  report_.frozen = generation;
  report_.holding = {word_.state == WordState::kFrozen, word_.generation, word_.step};
  if (parked_) report_.parked = generation;
  if (run_ && !run_frozen_) {
    run_frozen_ = true;
    // The connections of the group are shut down, after a moment for the program's own abort.
    if (!parked_) Later(kAbortMoment, [this, g = run_->generation] { BreakOut(g); });
  }
  Changed();
  return true;
}

void Worker::TakeAbort(Generation generation) {
  Do([this, generation] {
    if (!run_ || parked_ || generation < run_->generation) return;
    Later(Ms(1), [this, g = run_->generation] { BreakOut(g); });
  });
}

void Worker::BreakOut(Generation generation) {
  if (!run_ || run_->generation != generation || parked_ || !gang_) return;
  gang_->Leave(this, machine(), "connection closed by peer");
  OnGang({generation, at_ == At::kConnecting ? Gang::kConnect : word_.step.value, false, "connection shut down"});
}

void Worker::EndRun() {
  if (run_) run_->over = true;
}

void Worker::Fail(const std::string& why) {
  if (!error_.empty()) return;
  error_ = report_.error = why;
  attention_ = true;
  if (task_) task_->cancelled = true;
  EndRun();
  Changed();
}

// A report is due, and whoever waits looks again.
void Worker::Changed() {
  if (!std::exchange(report_asked_, true)) Later(kThread, [this] { SendReport(); });
  Notify();
}

void Worker::SendReady() {
  to_agent_.Send(kLocal, [self = shared_from_this(), info = InfoOf(*world_)] { self->node_->Heard(self, info); });
}

void Worker::Ask() {
  Do([this] {
    if (ready_) SendReady();
    Changed();
  });
}

void Worker::SendReport() {
  report_asked_ = false;
  if (!ready_) return;
  WorkerState state = report_;
  state.word = word_;
  state.position = position_;
  state.starting = starting_;
  state.stop_at = stop_at_;
  to_agent_.Send(kLocal, [self = shared_from_this(), state] { self->node_->Heard(self, state); });
}

void Worker::Notify() {
  if (std::exchange(turn_asked_, true)) return;
  Later(kThread, [this] {
    turn_asked_ = false;
    if (const auto look = when_free_) look();
    TryTurn();
  });
}

std::string Worker::Describe() const {
  return "slot " + std::to_string(slot.value) + " " + ToHex(id.value).substr(0, 8) + (ready_ ? "" : " starting") +
         (asleep_ ? " asleep" : "") + (stuck_ ? " stuck" : "") + (hung_ ? " hung" : "") + (deaf_ ? " deaf" : "") +
         " g=" + std::to_string(word_.generation.value) + " s=" + std::to_string(word_.step.value) + " " +
         WordStateName(word_.state) + " position=" + std::to_string(static_cast<int>(position_)) +
         " at=" + std::to_string(static_cast<int>(at_)) + " frozen=" + std::to_string(report_.frozen.value) +
         " parked=" + std::to_string(report_.parked.value) +
         " verified=" + std::to_string(report_.verified.generation.value) + " order: mode " +
         std::to_string(order_ ? static_cast<int>(order_->mode) : -1) + " g=" + std::to_string(newest_.value);
}

}  // namespace locum::sim
