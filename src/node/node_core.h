// The agent's decisions as a state machine: Step(event, now) in, an ordered list of actions out. No clock, no I/O,
// no randomness.
//
// It makes the node be as the coordinator's last order says, and tells the coordinator how it is. Both are whole
// states. Invariants:
//   - in a slot a worker is started only when nothing of the one before is left;
//   - a worker that ended by itself stays on record until an order retires it;
//   - an order of a lower term, of a lower generation, or for another incarnation changes nothing;
//   - without a coordinator the workers go on; nothing but its orders and their deadlines ends one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/supervision.h"
#include "node/node_worker.h"

namespace locum::node {

// More time than this between two steps was a pause of the agent itself, which counts against no worker.
inline constexpr Duration kOwnPause = std::chrono::seconds(1);
inline constexpr Duration kFastestHeartbeat = std::chrono::milliseconds(10);

struct Identity {
  std::string name;
  std::string address;
  std::string dir;
  Incarnation agent;
  int32_t agent_pid = 0;
};

// What the next agent of this node must know, besides what the workers say themselves.
struct Notes {
  Term term;
  std::string job;
  Incarnation cluster;
  struct Log {
    Incarnation worker;
    uint64_t offset = 0;
    Rank rank = kNoRank;
    friend bool operator==(const Log&, const Log&) = default;
  };
  std::vector<Log> logs;
  friend bool operator==(const Notes&, const Notes&) = default;
};

// ---- Events ------------------------------------------------------------------------------------------------

struct KeeperThere {
  KeeperHello hello;
  Notes notes;
};
struct WorkerSeen {
  WorkerRecord record;
};
struct WorkerIsReady {
  Incarnation worker;
  JoinInfo info;
};
struct WorkerSaid {
  Incarnation worker;
  WorkerState state;
};
struct WorkerLeft {
  Incarnation worker;
  std::string why;
};  // its connection is closed, or it sent nonsense
struct PagesRead {
  std::vector<PageReading> pages;
};  // of all that have joined
struct StopStored {
  PageReading page;
};  // after StoreStop
struct LogMeasured {
  Incarnation worker;
  uint64_t bytes = 0;
};
struct Drawn {
  std::vector<Incarnation> fresh;
};  // after Draw
struct StacksSaved {
  Incarnation worker;
};
struct UsageRead {
  Usage usage;
};
struct CoordinatorUp {
  Welcome welcome;
};
struct Ordered {
  NodeOrder order;
};
struct CoordinatorRefused {
  std::string reason;
  bool end = false;  // the job is over, also for what still runs here
};
struct CoordinatorLost {
  std::string reason;
};
struct Tick {};
using Event =
    std::variant<KeeperThere, WorkerSeen, WorkerIsReady, WorkerSaid, WorkerLeft, PagesRead, StopStored, LogMeasured,
                 Drawn, StacksSaved, UsageRead, CoordinatorUp, Ordered, CoordinatorRefused, CoordinatorLost, Tick>;

// ---- Actions -----------------------------------------------------------------------------------------------

struct Introduce {
  NodeHello hello;
};  // the first one starts the link
// The coordinator knows this node by a hello that no longer holds: ends the stream, the next one says the newest.
struct IntroduceAnew {};
struct SendReady {
  Slot slot;
  Incarnation worker;
  JoinInfo info;
};
struct SendReport {
  NodeReport report;
};
struct StartWorker {
  Slot slot;
  Incarnation worker;
  std::vector<std::string> command;
  std::string job;
  uint64_t seed = 0;
  uint32_t workers_per_node = 1;
  Duration grace{};
  std::string log, step_log;
};
struct EndWorker {
  StopWorker stop;
};
struct Forget {
  Incarnation worker;
};
struct EndNode {
  ShutdownNode shutdown;
};
struct Relay {
  Incarnation worker;
  WorkerOrder order;
  std::string measure;
};  // size of this log first, if named
struct Abort {
  Incarnation worker;
  Generation generation;
};
// Where its threads stand, into a file beside its log; StacksSaved follows.
struct SaveStacks {
  Incarnation worker;
  int32_t pid = 0;
  std::string file;
};
struct AskAgain {
  Incarnation worker;
};  // for Ready and State
struct StoreStop {
  Incarnation worker;
  Step stop_at;
};
struct Draw {
  uint32_t count = 0;
};
struct Remember {
  Notes notes;
};
struct Note {
  std::string name, text;
};
struct WakeAt {
  Time when;
};  // replaces the wish before
using Action = std::variant<Introduce, IntroduceAnew, SendReady, SendReport, StartWorker, EndWorker, Forget, EndNode,
                            Relay, Abort, SaveStacks, AskAgain, StoreStop, Draw, Remember, Note, WakeAt>;

class NodeCore {
 public:
  explicit NodeCore(Identity identity);
  std::vector<Action> Step(const Event& event, Time now);

 private:
  struct Place {  // one slot
    std::optional<WorkerOrder> order;
    Incarnation current;  // whom it holds
  };

  void On(const KeeperThere& there, Time now);
  void On(const WorkerSeen& seen, Time now);
  void On(const WorkerIsReady& ready, Time now);
  void On(const WorkerSaid& said, Time now);
  void On(const WorkerLeft& left, Time now);
  void On(const PagesRead& read, Time now);
  void On(const StopStored& stored, Time now);
  void On(const LogMeasured& measured, Time now);
  void On(const Drawn& drawn, Time now);
  void On(const StacksSaved& saved, Time now);
  void On(const UsageRead& read, Time now);
  void On(const CoordinatorUp& up, Time now);
  void On(const Ordered& ordered, Time now);
  void On(const CoordinatorRefused& refused, Time now);
  void On(const CoordinatorLost& lost, Time now);
  void On(const Tick&, Time now);

  std::string WhyStranger(const Welcome& welcome) const;
  Incarnation Trains() const;
  bool Obeys(const NodeOrder& order);
  void Follow(Slot slot, Place* place, Time now);
  void Tell(Worker* worker, const WorkerOrder& order, Time now);
  void Start(Slot slot, Place* place);
  void End(Worker* worker, Duration grace, const std::string& why);
  void EndAll(int32_t status, const std::string& why);
  void WatchWorkers(Time now);
  void SaveFirst(Worker* worker, const std::string& why, Time now);
  void SayHello();
  void KeepNotes();
  void ReportIfDue(Time now);
  NodeReport Report(Time now) const;
  Time NextWish(Time now) const;
  Worker* Find(Incarnation worker);
  template <class A>
  void Do(A action) {
    actions_.push_back(std::move(action));
  }

  const Identity identity_;
  std::vector<Action> actions_;
  KeeperHello keeper_;
  std::set<Incarnation> awaited_;  // workers the keeper holds and has not told of yet
  Notes notes_;
  Notes remembered_;
  std::optional<Welcome> welcome_;
  bool link_up_ = false;  // and its coordinator is ours
  bool ending_ = false;
  bool leaving_ = false;       // the keeper was told to end
  Incarnation introduced_as_;  // the cluster that the last hello named
  std::string refusal_;
  bool report_now_ = false;
  bool reported_waiting_ = false;
  bool reported_mute_ = false;
  Time stepped_at_ = kNever;
  bool quick_ = false;  // the last order said so
  Time reported_at_{};
  Time report_at_ = kNever;
  uint64_t sequence_ = 0;  // of the newest order obeyed in notes_.term
  bool drawing_ = false;   // random numbers are asked for and not here yet
  std::vector<Incarnation> fresh_;
  std::map<Slot, Place> places_;
  std::map<Incarnation, Worker> workers_;
  Usage usage_;
};

}  // namespace locum::node
