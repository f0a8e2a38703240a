#include "runtime/coordinator_loop.h"

#include <algorithm>
#include <chrono>

namespace locum {

CoordinatorLoop::CoordinatorLoop(CoordinatorCore core, CoordinatorPorts ports, std::function<Time()> clock)
    : core_(std::move(core)), ports_(std::move(ports)), clock_(std::move(clock)) {}

bool CoordinatorLoop::Post(Event event, std::function<void()> taken) {
  std::lock_guard lock(mutex_);
  if (closed_ || events_.size() >= kMaxQueuedEvents) return false;
  events_.push_back({std::move(event), std::move(taken)});
  work_.notify_one();
  return true;
}

bool CoordinatorLoop::View(std::function<void(const ClusterView*)> call) {
  std::lock_guard lock(mutex_);
  if (closed_ || views_.size() >= kMaxQueuedViews) return false;
  views_.push_back(std::move(call));
  work_.notify_one();
  return true;
}

void CoordinatorLoop::Stop(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!stop_) stop_ = reason;
  work_.notify_one();
}

CoordinatorLoop::Outcome CoordinatorLoop::Run() {
  last_turn_ = clock_();
  Tell(Tick{});
  while (!outcome_) {
    WaitForWork();
    Turn();
  }
  Close();
  if (ports_.idle) ports_.idle();
  return *outcome_;
}

void CoordinatorLoop::WaitForWork() {
  std::unique_lock lock(mutex_);
  const Time now = clock_();
  const Duration next = std::min({wake_, idle_at_, retry_at_}) - now;
  planned_ = std::clamp(next, Duration(0), wake_ - now < kNear ? kBeat : kCalmBeat);
  work_.wait_for(lock, planned_, [&] { return !events_.empty() || !views_.empty() || stop_.has_value(); });
}

void CoordinatorLoop::Turn() {
  Time now = clock_();
  Duration gap = now - last_turn_;
  last_turn_ = now;
  if (gap > planned_ + kLongestGap) Tell(Paused{gap});

  // What is there now; what arrives meanwhile waits for the next turn, so that timers are not starved.
  std::deque<Posted> events;
  std::deque<ViewCall> views;
  std::optional<std::string> stop;
  {
    std::lock_guard lock(mutex_);
    events.swap(events_);
    views.swap(views_);
    stop = stop_;
  }
  for (Posted& posted : events) {
    if (!outcome_) Tell(posted.event);
    if (posted.taken) posted.taken();
  }
  if (!outcome_ && stop) {
    Tell(StopRequested{*stop});
    if (!outcome_) outcome_ = Outcome{End::kStopped, 0, *stop};
  }
  if (!outcome_ && clock_() >= wake_) {
    wake_ = kNever;
    Tell(Tick{});
  }
  if (!outcome_) RetryStore();
  if (!outcome_) TellStore();
  if (!views.empty()) {
    ClusterView view = core_.view();
    for (ViewCall& call : views) call(&view);
  }
  bool idle;
  {
    std::lock_guard lock(mutex_);
    idle = events_.empty();
  }
  if (idle && ports_.idle) idle_at_ = ports_.idle();
}

void CoordinatorLoop::Tell(const Event& event) {
  Time now = clock_();
  if (const auto* lost = std::get_if<NodeLost>(&event)) withheld_.Forget(lost->stream);
  std::vector<Action> actions = core_.step(event, now);
  // That the store cannot be written follows from nothing that waits for it.
  const bool of_store = std::holds_alternative<StoreChanged>(event);
  for (const Action& action : actions) {
    if (of_store && std::holds_alternative<Note>(action)) {
      Do(action, now);
    } else {
      Execute(action, now);
    }
  }
  if (ports_.input) ports_.input(now, event, actions);
}

void CoordinatorLoop::Execute(const Action& action, Time when) {
  const auto* persist = std::get_if<Persist>(&action);
  if (withheld_.waits() && !std::holds_alternative<WakeAt>(action)) return withheld_.Take(action, when);
  if (!persist) return Do(action, when);
  Status status = ports_.persist(*persist->state);
  if (status.ok()) return;
  withheld_.Take(action, when);
  store_error_ = status.message();
  retry_at_ = clock_() + kStoreRetry;
}

void CoordinatorLoop::Do(const Action& action, Time when) {
  if (const auto* note = std::get_if<Note>(&action)) {
    ports_.note(*note, when);
  } else if (const auto* welcome = std::get_if<SendWelcome>(&action)) {
    ports_.welcome(*welcome);
  } else if (const auto* refuse = std::get_if<RefuseNode>(&action)) {
    ports_.refuse(*refuse);
  } else if (const auto* order = std::get_if<SendOrder>(&action)) {
    ports_.order(*order);
  } else if (const auto* wake = std::get_if<WakeAt>(&action)) {
    wake_ = wake->when;
  } else if (const auto* answer = std::get_if<Answer>(&action)) {
    ports_.answer(*answer);
  } else if (const auto* end = std::get_if<EndJob>(&action)) {
    outcome_ = Outcome{End::kJobEnded, end->exit_status, end->reason};
  }
}

void CoordinatorLoop::RetryStore() {
  if (!withheld_.waits() || clock_() < retry_at_) return;
  Status status = ports_.persist(*withheld_.state());
  if (!status.ok()) {
    store_error_ = status.message();
    retry_at_ = clock_() + kStoreRetry;
    return;
  }
  store_error_.clear();
  for (const WithheldAction& a : withheld_.Release()) Do(a.action, a.when);
}

// Once for each change, not for each failure.
void CoordinatorLoop::TellStore() {
  const StoreChanged now{withheld_.waits() ? store_error_ : room_error_, withheld_.waits()};
  if (now.error == told_store_.error && now.waits == told_store_.waits) return;
  told_store_ = now;
  Tell(now);
}

void CoordinatorLoop::Close() {
  std::deque<Posted> events;
  std::deque<ViewCall> views;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    events.swap(events_);
    views.swap(views_);
  }
  for (Posted& posted : events) {
    if (posted.taken) posted.taken();
  }
  for (ViewCall& call : views) call(nullptr);
}

}  // namespace locum
