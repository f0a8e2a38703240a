// The shell around the cluster's decisions: one thread owns the core, others hand it events through a queue with a
// limit.
//
// Invariants: everything that waits in the queue is told to the core before a timer fires. Actions are executed one
// after the other in the order the core gave them; a Persist is on disk before the next begins. When one fails, it and
// everything behind it waits (core/withheld.h), the core is told, and it is tried again until it works; views are
// answered meanwhile. When the loop itself did not run for a while, the core is told before
// anything else, so that its own pause does not look like everyone's death.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "core/coordinator.h"
#include "core/withheld.h"

namespace locum {

inline constexpr size_t kMaxQueuedEvents = 16384;
inline constexpr size_t kMaxQueuedViews = 64;
// The loop turns at least this often: while a time-out is due within kNear, and while none is.
inline constexpr Duration kBeat = std::chrono::milliseconds(50);
inline constexpr Duration kNear = std::chrono::seconds(1);
inline constexpr Duration kCalmBeat = std::chrono::milliseconds(500);
inline constexpr Duration kStoreRetry = std::chrono::seconds(1);         // after a Persist that failed
inline constexpr Duration kLongestGap = std::chrono::milliseconds(300);  // later than planned by more: it was paused

// The decisions: class Coordinator, or what a test or a replay puts in its place.
struct CoordinatorCore {
  std::function<std::vector<Action>(const Event&, Time)> step;
  std::function<ClusterView()> view;
};

// What the loop needs of the world. All are called from the loop's thread; none may wait for the loop.
struct CoordinatorPorts {
  std::function<Status(const PersistentState&)> persist;  // returns when it is on disk
  std::function<void(const SendWelcome&)> welcome;
  std::function<void(const RefuseNode&)> refuse;
  std::function<void(const SendOrder&)> order;
  std::function<void(const Note&, Time)> note;
  std::function<void(const Answer&)> answer;
  // After the actions of an input were executed.
  std::function<void(Time, const Event&, const std::vector<Action>&)> input;
  // The queue is empty: a good moment to write what was only collected. Returns when it wants to be called again.
  std::function<Time()> idle;
};

class CoordinatorLoop {
 public:
  enum class End { kJobEnded, kStopped };
  struct Outcome {
    End end = End::kStopped;
    int exit_status = 1;  // of the job, when it ended
    std::string reason;
  };

  CoordinatorLoop(CoordinatorCore core, CoordinatorPorts ports, std::function<Time()> clock);

  // Any thread. `taken` is called from the loop when the core has seen the event, or never will. False: the loop has ended or its
  // queue is full, and nothing will be called.
  bool Post(Event event, std::function<void()> taken);
  // Any thread. Calls back from the loop, with null once it has ended.
  bool View(std::function<void(const ClusterView*)> call);
  // Any thread. The core is told, then the loop ends.
  void Stop(const std::string& reason);

  // From a port, on the loop's thread: `error` says what else could not be written where the store is; empty: it could.
  void ReportRoom(const std::string& error) { room_error_ = error; }

  // On the thread that owns the core. Returns when the job has ended, or after Stop.
  Outcome Run();

 private:
  struct Posted {
    Event event;
    std::function<void()> taken;
  };
  using ViewCall = std::function<void(const ClusterView*)>;

  void Tell(const Event& event);
  void Execute(const Action& action, Time when);
  void Do(const Action& action, Time when);
  void RetryStore();
  void TellStore();
  void Turn();
  void WaitForWork();
  void Close();

  const CoordinatorCore core_;
  const CoordinatorPorts ports_;
  const std::function<Time()> clock_;

  // Of the loop's thread.
  Time wake_ = kNever;
  Time last_turn_;
  Time idle_at_ = kNever;
  Duration planned_{};  // how long the loop meant to wait at most
  std::optional<Outcome> outcome_;
  Withheld withheld_;
  Time retry_at_ = kNever;
  std::string store_error_, room_error_;
  StoreChanged told_store_;

  std::mutex mutex_;
  std::condition_variable work_;
  bool closed_ = false;
  std::optional<std::string> stop_;
  std::deque<Posted> events_;
  std::deque<ViewCall> views_;
};

}  // namespace locum
