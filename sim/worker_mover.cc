// The mover of a simulated worker and the serving of its state: src/worker/protocol_moving.cc, mover.cc, puller.cc.
#include <algorithm>
#include <utility>

#include "sim/node.h"
#include "sim/watch.h"
#include "sim/worker.h"

namespace locum::sim {
namespace {

constexpr Duration Us(int64_t us) { return std::chrono::microseconds(us); }
constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration kConnect = std::chrono::seconds(2);  // src/worker/puller.h
constexpr Duration kStall = std::chrono::seconds(5);
constexpr Duration kPause = Ms(50);
constexpr int kRounds = 3;
constexpr Duration kEchoPatience = std::chrono::seconds(3);

}  // namespace

void Worker::Serve::End() {
  if (std::exchange(ended, true)) return;
  std::erase_if(source->serves_, [this](const auto& other) { return other.get() == this; });
  source->Notify();
}

void Worker::StartRecovery() {
  const WorkerOrder& order = *order_;
  if (attempted_) {
    const bool same = attempted_->generation == order.generation && attempted_->recovery_step == order.recovery_step &&
                      attempted_->pull == order.pull && attempted_->staged == order.staged;
    if (same && !(attempt_failed_ && attempted_->sources != order.sources)) return;
  }
  if (task_) {
    task_->cancelled = true;
    return Notify();
  }
  attempted_ = order;
  attempt_failed_ = false;
  report_.rank = order.rank;
  report_.verified = {};
  report_.cannot_pull = Generation(0);
  report_.pull_error.clear();
  if (order.recovery_step != word_.step) report_.done = false;
  task_ = std::make_shared<Task>(Task{order});
  Later(Us(20), [this, task = task_] { RunTask(task); });
}

void Worker::RunTask(const std::shared_ptr<Task>& task) {
  if (task->cancelled) return TaskDone(task);
  if (task->echo) return DoEcho(task);
  if (!task->order.pull) return Later(Ms(1), [this, task] { HashOwn(task); });
  const auto begin = [this, task] {
    auto pull = std::make_shared<Pull>();
    pull->task = task;
    pull->begin = world_->stage.now();
    NextSource(pull);
  };
  task->order.staged ? begin() : WhenFree(task, begin);
}

void Worker::TaskDone(const std::shared_ptr<Task>& task) {
  if (!task->echo && task->cancelled) attempted_.reset();
  task_.reset();
  Reconcile();
  Notify();
}

void Worker::HashOwn(const std::shared_ptr<Task>& task) {
  if (!task->cancelled) {
    const bool here = word_.state == WordState::kFrozen && word_.step == task->order.recovery_step;
    if (here) {
      locum::Verified verified;
      verified.source = id;
      verified.begin_ns = verified.end_ns = world_->stage.now().ns;
      Verify(task, verified);
    } else {
      attempt_failed_ = true;
      report_.cannot_pull = task->order.generation;
      report_.pull_error = "this worker is not at the recovery step, and was not told to pull";
      Changed();
    }
  }
  TaskDone(task);
}

void Worker::DoEcho(const std::shared_ptr<Task>& task) {
  const auto peer = world_->Find(task->order.echo_peer.worker);
  const bool reached = peer && world_->network.Reach(machine(), peer->machine()) && !peer->asleep();
  Later(reached ? Ms(5)
        : !peer ? Ms(1)
                : kEchoPatience,
        [this, task, reached] {
          if (!task->cancelled) {
            const auto still = world_->Find(task->order.echo_peer.worker);
            const bool ok = reached && still && world_->network.Reach(machine(), still->machine());
            report_.echo = {task->order.echo_nonce, ok, ok ? 1u << 20 : 0u, 5'000'000, ok ? "" : "no answer"};
            Changed();
          }
          TaskDone(task);
        });
}

// ---- Serving -------------------------------------------------------------------------------------------------

// Nobody begins to read the state any more, and who reads it is told to stop.
void Worker::CloseServing() {
  if (std::exchange(closed_, true)) return;
  for (const auto& serve : serves_) {
    serve->cancelled = true;
    Later(Us(50), [serve] { serve->End(); });
  }
}

std::shared_ptr<Worker::Serve> Worker::BeginServe(Generation generation, Step step) {
  const bool holds = word_.state == WordState::kFrozen && word_.step == step && report_.frozen == generation;
  if (!ready_ || closed_ || !error_.empty() || overwriting_ || !holds) return nullptr;
  auto serve = std::make_shared<Serve>();
  serve->source = shared_from_this();
  serves_.push_back(serve);
  return serve;
}

// ---- Pulling -------------------------------------------------------------------------------------------------

// Waits until the state may be overwritten, then marks it torn.
void Worker::WhenFree(const std::shared_ptr<Task>& task, std::function<void()> then) {
  CloseServing();
  when_free_ = [this, task, then = std::move(then)] {
    if (!task->cancelled && !(parked_ && serves_.empty())) return;
    when_free_ = nullptr;  // Notify holds on to this one
    closed_ = false;
    if (task->cancelled) return TaskDone(task);
    world_->watch->Overwriting(*this, task->order);
    overwriting_ = true;
    SetWord(word_.generation, word_.step, WordState::kTorn);
    then();
  };
  Notify();
}

void Worker::NextSource(const std::shared_ptr<Pull>& pull) {
  if (pull->task->cancelled) return EndPull(pull, false);
  const bool current = order_ && order_->mode == Mode::kRecover && order_->generation == pull->task->order.generation;
  const std::vector<Peer>& sources = current ? order_->sources : pull->task->order.sources;
  if (pull->source >= sources.size()) {
    pull->source = 0;
    if (++pull->round >= kRounds || sources.empty()) return EndPull(pull, false);
    return Later(kPause, [this, pull] { NextSource(pull); });
  }
  const Incarnation from = sources[pull->source++].worker;
  const auto source = world_->Find(from);
  if (!source) return SourceFailed(pull, Ms(1));
  if (source->asleep() || !world_->network.Reach(machine(), source->machine())) return SourceFailed(pull, kConnect);
  Later(Us(300), [this, pull, source, from] {
    if (pull->task->cancelled) return EndPull(pull, false);
    if (!source->alive()) return SourceFailed(pull, Ms(1));
    pull->serve = source->BeginServe(pull->task->order.generation, pull->task->order.recovery_step);
    if (!pull->serve) return SourceFailed(pull, Us(300));
    pull->from = from;
    NextChunk(pull);
  });
}

void Worker::SourceFailed(const std::shared_ptr<Pull>& pull, Duration after) {
  if (pull->serve) std::exchange(pull->serve, nullptr)->End();
  ++pull->retries;
  Later(after, [this, pull] { NextSource(pull); });
}

void Worker::NextChunk(const std::shared_ptr<Pull>& pull) {
  if (pull->next == kChunks) return Pulled(pull);
  const auto source = pull->serve->source;
  if (pull->serve->ended || pull->serve->cancelled || !source->alive()) return SourceFailed(pull, Ms(1));
  if (source->asleep() || !world_->network.Reach(machine(), source->machine())) return SourceFailed(pull, kStall);
  // Read at the source now, here when it arrives.
  const uint64_t chunk = source->content()[pull->next];
  Later(world_->options.chunk, [this, pull, chunk] { ChunkArrived(pull, chunk); });
}

void Worker::ChunkArrived(const std::shared_ptr<Pull>& pull, uint64_t chunk) {
  if (pull->task->cancelled) return EndPull(pull, false);
  const auto source = pull->serve->source;
  if (!world_->network.Reach(machine(), source->machine())) return SourceFailed(pull, kStall);
  if (!source->alive())
    return SourceFailed(pull, Ms(1));  // what was on its way came, or did not; it is asked for again
  (pull->task->order.staged ? pull->arrived : content_)[pull->next] = chunk;
  ++pull->next;
  NextChunk(pull);
}

void Worker::Pulled(const std::shared_ptr<Pull>& pull) {
  std::exchange(pull->serve, nullptr)->End();
  if (!pull->task->order.staged) return EndPull(pull, true);
  WhenFree(pull->task, [this, pull] {
    // To stop half-way would lose a copy that is nearly complete and safe.
    Later(Us(500), [this, pull] {
      content_ = pull->arrived;
      EndPull(pull, true);
    });
  });
}

void Worker::EndPull(const std::shared_ptr<Pull>& pull, bool complete) {
  if (pull->serve) std::exchange(pull->serve, nullptr)->End();
  const std::shared_ptr<Task> task = pull->task;
  if (overwriting_) {
    overwriting_ = false;
    if (complete) SetWord(task->order.generation, task->order.recovery_step, WordState::kFrozen);
  }
  if (complete) {
    locum::Verified verified;
    verified.bytes = kChunks * sizeof(uint64_t);
    verified.begin_ns = pull->begin.ns;
    verified.end_ns = world_->stage.now().ns;
    verified.retries = pull->retries;
    verified.source = pull->from;
    spoiled_ = false;
    Verify(task, verified);
  } else if (!task->cancelled && task->order.generation == report_.frozen) {
    attempt_failed_ = true;
    report_.cannot_pull = task->order.generation;
    report_.pull_error = "no source could give state " + std::to_string(task->order.recovery_step.value);
    Changed();
  }
  TaskDone(task);
}

void Worker::Verify(const std::shared_ptr<Task>& task, const locum::Verified& verified) {
  if (task->cancelled || task->order.generation != report_.frozen) return;
  SetWord(task->order.generation, word_.step, WordState::kFrozen);
  report_.verified = verified;
  report_.verified.generation = task->order.generation;
  report_.verified.step = task->order.recovery_step;
  report_.verified.state_hash = HashOf(content_);
  if (finish_step_ && word_.step >= *finish_step_) report_.done = true;
  world_->watch->Verified(*this);
  Changed();
}

}  // namespace locum::sim
