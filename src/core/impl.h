// The coordinator's memory, shared by the files of this folder; nobody else includes it.
//
// One Step is: take the event's facts in, then let the rules of each file look at all facts, then derive from the
// result what should be on disk and what each node should be told, and emit what changed. So nothing depends on
// which message brought a fact, and a repeated or late message changes nothing.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/coordinator.h"

namespace locum {

// Generations opened in a row without one commit; then something is wrong that a new group does not mend.
inline constexpr size_t kMaxRefused = 1024;
inline constexpr uint32_t kMaxFruitless = 8;
inline constexpr Duration kLateToTell = std::chrono::seconds(1);  // a trainer that is awaited for longer is told of
inline constexpr Duration kLookAgain = std::chrono::milliseconds(1);
// Generations opened since the last commit, those that never ran counted too.
inline constexpr uint32_t kMaxOpened = 64;
// Starts of a worker that failed before it was ready; then the node is set aside.
inline constexpr uint32_t kMaxFailedStarts = 3;
// A worker without a rank that ends younger than this is started again only after a while.
inline constexpr Duration kProvenLife = std::chrono::seconds(10);
inline constexpr Duration kRestartDelay = std::chrono::seconds(1);
// Between two handshakes of a node whose link failed one.
inline constexpr Duration kEchoRetry = std::chrono::seconds(2);
// Training stands still for that long and everyone is heard: then the links are tested.
inline constexpr Duration kLinkPatience = std::chrono::seconds(3);
// For a round of echoes; one that finds nobody gives up within 3 s itself.
inline constexpr Duration kRoundPatience = std::chrono::seconds(5);
// Between two rounds that decided nothing.
inline constexpr Duration kRoundPause = std::chrono::seconds(10);
// What is waited for that long is for an operator to know.
inline constexpr Duration kWaitAlarm = std::chrono::seconds(5);

inline constexpr const char* kStuck = "a process of its worker was killed and does not end: the kernel holds it";

struct SlotInfo {
  Incarnation worker;  // as last reported; 0: none
  std::optional<WorkerReport> report;
  std::optional<JoinInfo> info;
  std::string refuse;          // why this worker may not take part
  Incarnation retire;          // to be ended
  uint32_t failed_starts = 0;  // in a row
  Time restart_at{};           // not before
  Time started_at{};           // when this incarnation was first seen
  bool seen_alive = false;     // by this coordinator
  bool Ready() const {
    return report && report->life == WorkerLife::kReady && info && refuse.empty() && worker != retire;
  }
  bool Exited() const { return report && report->life == WorkerLife::kExited; }
};

struct Node {
  std::string name;
  NodeState state = NodeState::kJoining;
  Role role = Role::kNone;
  std::string reason;
  bool connected = false;
  bool leaving = false;   // it was told to end
  bool stranger = false;  // it trains for another cluster and is not welcome yet
  bool seen = false;      // in this coordinator's life
  StreamId stream = 0;
  NodeHello hello;
  Time last_heard{};
  Time heard_since{};  // without a silence in between
  Time quick_since{};  // when it was told to report quickly
  Time lost_at{};
  bool reported = false;  // since it connected: until then an absent worker proves nothing
  std::map<Slot, SlotInfo> slots;
  std::map<Slot, std::pair<Incarnation, JoinInfo>> infos;  // the newest of each; its report may not have come yet
  Usage usage;
  bool suspect_noted = false;
  std::vector<Time> restarts;  // of ranked workers in place, within the limits' window
  uint64_t echo_nonce = 0;     // the handshake under way; 0: none
  Time echo_at{};              // after a failed one: when to try again
  NodeOrder last_order;        // what this stream was told last
  bool order_sent = false;
  bool told_end = false;  // that the job has ended
};

struct PlannedMove {
  bool active = false;
  std::string node;  // who takes its ranks back
  ::locum::Step stop_at = kNoStop;
  uint64_t margin = 0;
  bool all_parked = false;
  Time first_parked{};
};

struct Coordinator::Impl {
  Impl(JobSpec spec, Term term, Incarnation cluster, std::optional<PersistentState> stored);

  std::vector<Action> Step(const Event& event, Time now);

  // membership.cc: facts
  void On(const NodeConnected& e);
  void On(const NodeLost& e);
  void On(const WorkerReady& e);
  void On(const NodeReported& e);
  void On(const FailbackRequested& e);
  void On(const AdoptRequested& e);
  void On(const StoreChanged& e);
  void On(const StopRequested& e);
  void On(const Paused& e);
  void RestartDeadlines();
  void LetNodesEnd();
  void On(const Tick&) {}
  void TakeReport(Node& node, const WorkerReport& report);
  std::string WhyRefused(const NodeHello& hello, bool stranger) const;
  Node* ByStream(StreamId stream);
  bool AskedToHurry(const Node& node) const { return node.order_sent && node.last_order.quick; }
  Time LastSign(const Node& node) const;
  Duration Patience(const Node& node) const;
  Time SilentAt(const Node& node) const;
  bool Heard(const Node& node) const { return node.connected && now_ < SilentAt(node); }
  void Hear(Node& node);
  void SetState(Node& node, NodeState state, const std::string& reason);
  bool NodeReady(const Node& node) const;  // connected, every slot ready
  bool UsableSpare(const Node& node) const;
  bool SpareReady() const;  // any
  std::string WhyNotReady(const Node& node) const;

  // consistency.cc
  void CheckConsistency(Node& node, Slot slot);

  // repair.cc: what brings a node back
  bool WantsFreshWorkers() const;
  bool Stale(const Node& node, Slot slot, const SlotInfo& info) const;
  void RestartSlots();  // exited workers of idle slots
  std::optional<Peer> EchoPeer(const Node& node) const;
  void Handshakes();

  // gather.cc: until the first generation
  void Gather();
  void FailStart(const Node& node, const SlotInfo& slot);

  // detect.cc: who failed
  void Detect();
  void DetectWorkers();
  void DetectBroken();
  void DetectLostWhileOpening();
  void DetectSilence();
  void DetectIdle();
  void DetectHang();

  // links.cc: who is cut off from its peers alone
  void DetectLinks();
  bool TestLinks();
  bool BeginRound();
  void AddProbe(WorkerOrder* order) const;
  bool StandsStill(Duration since) const;
  bool SomeoneWaits() const;
  bool HeardBeyond(const Node& node, Time silent_since) const;

  // last_copy.cc
  void ChooseKept();
  void DetectKept();

  // generation.cc: from the trigger to the first commit
  struct Fault {
    std::string node;  // empty: no culprit
    Rank rank = kNoRank;
    Incarnation worker;
    std::string reason;
    bool answers = false;   // its library still does: it freezes, and may serve its state
    bool in_place = false;  // the worker's alone: its node may start another one
    bool hung = false;      // nothing of it moves; it is not asked to end
  };
  void Open(const std::vector<Fault>& faults, const std::string& reason);

  void AddSinceFault(Note& note) const;

  // blame.cc: the program's own fault, and how often is too often
  bool Capped(const std::vector<Fault>& faults, const std::string& reason);
  bool ProgramFault(const std::vector<Fault>& faults);
  bool MayRestartHere(const Fault& fault);

  // place.cc: who takes the ranks
  void Displace(const std::vector<Fault>& faults);
  void ClearWorker(const Fault& fault);
  void FailNode(const std::string& name, const std::string& reason);
  void TryPlaceMissing();
  std::string PlaceInPlace();
  bool HoldsLastCopy(const Placement& placement) const;
  std::string WhyNotInPlace(const Placement& placement) const;
  bool RestoreHolder(const std::vector<Placement*>& group);
  bool PlaceOnFormer(const std::vector<Placement*>& group);
  bool PlaceOnSpare(const std::vector<Placement*>& group);
  bool MayTakeRank(Incarnation worker) const { return !faulted_.count(worker) && !proven_dead_.count(worker); }

  // generation.cc again
  bool StateMayExist(Incarnation except = Incarnation()) const;
  std::string WhatIsLost() const;
  void ProgressFreeze();
  void FixRecovery();
  void ProgressRecovery();
  void StartRunning();
  void ProgressRunning();
  void AfterResumed();
  void ForgetWorkers();
  bool Gone(Incarnation worker) const { return gone_.count(worker) != 0; }
  bool Over() const { return p_.phase == JobPhase::kFinished || p_.phase == JobPhase::kFailed; }
  bool Recovering() const { return p_.phase == JobPhase::kFreezing || p_.phase == JobPhase::kRecovering; }

  // moves.cc: planned moves
  Status CheckFailback(const std::string& name) const;
  void ProgressStop();
  void CancelMove(const std::string& why);

  // adopt.cc: the nodes of a coordinator whose database is lost
  bool Adopting() const { return p_.adopts != Incarnation() && p_.phase == JobPhase::kGathering; }
  Status CheckAdopt() const;
  void WelcomeStranger(Node& node);
  void ProgressAdopt();
  Placement WithItsPeers(Rank rank, const std::map<Rank, Placement>& found) const;
  void TakeOver(const std::map<Rank, Placement>& found, Generation running, Generation newest);

  // alarms.cc
  void UpdateAlarms();

  // finish.cc
  void CheckStops();
  void ProgressFinish();
  bool LostAtEnd(const Placement& placement);
  void Fail(int exit_status, const std::string& reason);
  void TellEnd();

  // orders.cc
  NodeOrder OrderFor(const Node& node, bool hurry) const;
  WorkerOrder OrderFor(const Node& node, Slot slot, const SlotInfo& info) const;
  void SendOrders();
  Welcome WelcomeFor(const Node& node) const;

  // coordinator.cc
  Note& AddNote(const std::string& name);
  Note& AddNote(const std::string& name, const Node& node);
  void Want(Time when);  // a Tick at this time
  Placement* PlacementOf(Rank rank);
  const Placement* PlacementOf(const std::string& node, Slot slot, Incarnation worker) const;
  const Placement* LeavingOf(Incarnation worker) const;
  bool HoldsRank(const std::string& node) const;
  Node* NodeOf(const Placement& placement);
  const Node* NodeOf(const Placement& placement) const;
  const WorkerReport* ReportOf(const Placement& placement) const;  // of exactly this incarnation
  const JoinInfo* InfoOf(const Placement& placement) const;
  uint32_t World() const { return p_.spec.nodes * p_.spec.workers_per_node; }
  const Timeouts& T() const { return p_.spec.timeouts; }
  ClusterView View() const;

  PersistentState p_;
  PersistentState saved_;
  bool ever_saved_ = false;
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::string> refused_;  // by name, why; as the history last told

  Time now_{};
  bool started_ = false;
  bool stopped_ = false;   // told to stop: no decision any more
  bool adopting_ = false;  // a new coordinator over a stored job, nodes still coming back
  bool ended_ = false;
  Time began_{};
  Time ready_since_{};  // gathering: when N nodes were ready
  bool enough_ready_ = false;

  std::set<Incarnation> gone_;         // workers not waited for any more
  std::set<Incarnation> proven_dead_;  // of those, the ones their keeper vouches for
  std::set<Incarnation> faulted_;      // blamed by evidence: they take no rank again
  std::set<Incarnation> distrusted_;   // whose state differs from the others'
  std::set<Incarnation> hung_;         // of the faulted ones, those that are killed without a word
  struct OwnFault {
    Rank rank = kNoRank;
    Generation generation;
    std::string node, what;
  };
  OwnFault own_fault_;              // the newest exit of a worker by its own doing
  bool failed_here_twice_ = false;  // it was on the same node as the one before
  std::vector<Time> recoveries_;    // with a culprit, within the limits' window
  std::string capped_;              // why the next one waits; recomputed in each Step
  std::string store_error_;
  bool store_waits_ = false;
  struct Alarm {
    std::string text;
    Time since;
  };
  std::map<std::pair<std::string, std::string>, Alarm> alarms_;  // by name and node
  Time waiting_since_{};
  Time adopt_since_{};
  size_t adopted_ranks_ = 0;  // of those taken over, that have reported
  Time broken_since_{};
  bool broken_ = false;
  Time phase_since_{};
  bool unsettled_ = false;  // no rank has committed in this generation
  Time unsettled_since_{};  // nor in any since then
  Incarnation kept_;        // its copy may be the last; none: others hold one
  bool others_expendable_ = false;
  Time kept_since_{};
  RecoveryPlan plan_;
  bool resumed_ = true;                              // every rank has committed in this generation
  uint32_t fruitless_ = 0;                           // generations in a row that ran and made no step
  uint32_t opened_ = 0;                              // since the last commit
  std::map<Incarnation, std::string> failed_since_;  // the last commit: who failed, where, and why
  std::optional<Time> fault_at_;  // of the newest trigger that was a fault, in this coordinator's life
  ::locum::Step committed_;       // by every rank
  Time last_progress_{};          // when some rank last moved on
  bool stalled_ = false;          // no rank has for timeouts.hang, and none waits for another
  std::map<Incarnation, ::locum::Step> last_step_;
  std::string waiting_for_;
  std::string waiting_noted_;
  PlannedMove move_;
  uint64_t last_nonce_ = 0;
  struct Probe {
    std::string node;
    Slot slot;
    Incarnation worker;
    uint64_t nonce = 0;
    Peer self;  // as the one before it is told
  };
  std::vector<Probe> round_;           // the test of the links under way; each echoes with the next
  Time round_at_{}, round_again_{};    // when it began; when another may
  std::string links_;                  // what the last round found wrong, as long as training stands still
  std::set<Incarnation> unreachable_;  // for its peers; its copy is the last one to be fetched
  uint64_t sequence_ = 0;
  bool returning_ = false;  // this generation is a planned move
  std::string returning_node_;
  std::map<Rank, WorkerExit> exits_;
  Time finish_since_{};
  Time end_at_{};

  std::vector<Action> out_;  // of this Step
  Time wake_ = kNever;
};

// The trainer's thread has come to its next step since this generation was opened.
bool CameBack(const WorkerState& state, Generation generation);

inline std::string Where(const std::string& node, Slot slot) { return node + " slot " + std::to_string(slot.value); }

// The exit status a shell would show.
int ShellStatus(const WorkerExit& exit);

// "node-2" before "node-10".
bool NaturalLess(const std::string& a, const std::string& b);

}  // namespace locum
