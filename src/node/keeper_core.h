// The keeper's decisions as a state machine: Step(event, now) in, an ordered list of actions out. No clock, no I/O.
//
// It keeps one agent running, starts and stops workers as the agent says, and remembers of each worker what a new
// agent has to know. Invariants:
//   - a worker is `ended` only when nothing of it is left, and it is ended once;
//   - who ends first does not matter: after the process that joined, or the one that was started, nothing of the
//     worker stays;
//   - once an end was asked for, no process is started any more, and every wait on the way out has a deadline.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/supervision.h"

namespace locum::keep {

struct Limits {
  Duration restart_first = std::chrono::milliseconds(50);  // an agent's second death in a row
  Duration restart_last = std::chrono::seconds(2);
  Duration agent_proven = std::chrono::seconds(10);  // an agent that lived so long was a good one
  Duration agent_leave = std::chrono::seconds(2);    // for the agent to end when its keeper ends
  // After the process that joined is gone: where only its wrapper knows the exit status, to bring it.
  Duration wrapper_patience = std::chrono::milliseconds(250);
  Duration kill_patience = std::chrono::seconds(10);  // SIGKILL to gone; after that the reaper is suspected
  size_t workers = 1024;
  size_t log_tail = 2048;
};

// ---- Events ------------------------------------------------------------------------------------------------

struct StartAsked {
  Slot slot;
  Incarnation worker;
  Duration grace{};
  std::string log, step_log;
};
struct Begin {};
struct Tick {};
using Event = std::variant<Begin, Tick, StartAsked, StopWorker, ForgetWorker, ShutdownNode, RememberNotes, AgentEnded,
                           WorkerStarted, WorkerNotStarted, WorkerEnded, JoinedEnded, JoinAsked, EndAsked>;

// ---- Actions -----------------------------------------------------------------------------------------------

struct StartAgent {};
struct LeaveAgent {};  // close its channel; it ends by itself
struct KillAgent {};
struct TellHello {
  KeeperHello hello;
};
struct TellWorker {
  WorkerRecord record;
};
struct LaunchWorker {
  Incarnation worker;
};
struct TermWorker {
  Incarnation worker;
};
struct KillWorker {
  Incarnation worker;
};  // and everything below it
struct KillReaper {
  Incarnation worker;
};  // it does not do its work
struct Admit {
  uint64_t connection;
  Incarnation worker;
};
// Nobody may join any more; whoever knocked before still gets an answer.
struct CloseDoor {};
struct RefuseJoin {
  uint64_t connection;
  std::string text;
};
struct DropWorker {
  Incarnation worker;
};  // close what is held for it
struct WakeAt {
  Time when;
};  // replaces the wish before; kNever for none
struct EndKeeper {
  int32_t status = 0;
  std::string reason;
};
struct Note {
  std::string name, text;
};  // for the node's log
using Action = std::variant<StartAgent, LeaveAgent, KillAgent, TellHello, TellWorker, LaunchWorker, TermWorker,
                            KillWorker, KillReaper, Admit, CloseDoor, RefuseJoin, DropWorker, WakeAt, EndKeeper, Note>;

class KeeperCore {
 public:
  KeeperCore(Incarnation keeper, int32_t pid, Limits limits = {});
  std::vector<Action> Step(const Event& event, Time now);

 private:
  enum class Phase { kUp, kStoppingWorkers, kStoppingAgent, kOver };
  struct Worker {
    WorkerRecord record;
    Duration grace{};
    bool joined_gone = false;
    Time kill_at = kNever;     // SIGKILL then
    Time suspect_at = kNever;  // killed, and still not gone then
    bool reaper_killed = false;
    bool given_up = false;  // SIGKILL does not end it, not even by the keeper's own hand
  };

  void On(const Begin&, Time now);
  void On(const Tick&, Time now);
  void On(const StartAsked& start, Time now);
  void On(const StopWorker& stop, Time now);
  void On(const ForgetWorker& forget, Time now);
  void On(const ShutdownNode& shutdown, Time now);
  void On(const RememberNotes& notes, Time now);
  void On(const AgentEnded& ended, Time now);
  void On(const WorkerStarted& started, Time now);
  void On(const WorkerNotStarted& failed, Time now);
  void On(const WorkerEnded& ended, Time now);
  void On(const JoinedEnded& gone, Time now);
  void On(const JoinAsked& join, Time now);
  void On(const EndAsked& asked, Time now);

  void BeginAgent(Time now);
  void BeginStop(Worker* worker, Duration grace, Time now);
  void KillNow(Worker* worker, Time now);
  void MarkEnded(Worker* worker, WorkerExit exit);
  // `grace` empty: each worker's own.
  void BeginEnd(std::optional<Duration> grace, int32_t status, const std::string& reason, Time now);
  void Advance(Time now);
  bool AllEnded() const;
  bool AllEndedOrGivenUp() const;
  Time NextWish() const;
  Worker* Find(Incarnation worker);
  template <class A>
  void Do(A action) {
    actions_.push_back(std::move(action));
  }

  const Incarnation keeper_;
  const int32_t pid_;
  const Limits limits_;
  std::vector<Action> actions_;
  std::map<Incarnation, Worker> workers_;
  std::string notes_;

  Phase phase_ = Phase::kUp;
  int32_t status_ = 0;
  std::string reason_;
  std::map<int32_t, int> asked_;  // how often each signal came
  bool agent_runs_ = false;
  uint32_t agent_starts_ = 0;
  uint32_t deaths_in_a_row_ = 0;
  Time agent_since_{};
  Time agent_restart_at_ = kNever;
  Time agent_kill_at_ = kNever;
};

}  // namespace locum::keep
