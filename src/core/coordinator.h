// The cluster's decisions as a state machine: Step(event, now) in, an ordered list of actions out. No clock, no
// I/O, no threads, no randomness. The runtime executes the actions in their order; a Persist is on disk before
// the action behind it is begun.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/cluster.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/plan.h"

namespace locum {

// ---- What it is told at its making -----------------------------------------------------------------------

struct Timeouts {
  // A node reports at least this often, and what changes at once; kQuicker times as often while training stands still.
  Duration heartbeat = std::chrono::seconds(1);
  Duration silence = std::chrono::milliseconds(700);  // while training stands still; a silent node is failed then
  Duration lost_stream_grace =
      std::chrono::milliseconds(15);  // lost stream + broken collective: how long to wait for other evidence
  Duration culprit_grace = std::chrono::milliseconds(300);  // broken collective and no culprit: same members again
  Duration freeze = std::chrono::seconds(5);                // to answer a freeze
  Duration collective = std::chrono::seconds(10);           // to leave an aborted collective, before SIGKILL
  Duration park = std::chrono::seconds(120);                // to come back to NextStep, before SIGKILL
  Duration join = std::chrono::seconds(300);                // first start: for every worker to be ready
  Duration gather = std::chrono::seconds(3);   // first start: wait this long for spares after N nodes are there
  Duration hang = std::chrono::seconds(600);   // a rank that holds all others up for this long is failed
  Duration grace = std::chrono::seconds(5);    // SIGTERM to SIGKILL
  Duration finish = std::chrono::seconds(60);  // for workers to exit after the end is on record
  Duration adopt = std::chrono::seconds(10);   // for nodes to come back to a new coordinator
  friend bool operator==(const Timeouts&, const Timeouts&) = default;
};

// Of what happens by itself; beyond it an operator is asked.
struct Limits {
  uint32_t restarts = 3;      // of workers in place, on one node within `window`; then the node counts as failed
  uint32_t recoveries = 100;  // with a culprit, of the job within `window`; then the next one waits
  Duration window = std::chrono::hours(1);
  friend bool operator==(const Limits&, const Limits&) = default;
};

struct JobSpec {
  std::string job;
  std::vector<std::string> command;
  uint32_t nodes = 1;
  uint32_t spares = 0;
  uint32_t workers_per_node = 1;
  uint64_t seed = 0;
  Timeouts timeouts;
  Limits limits;
  // A worker that fails alone: false, it is started again on its node; true, a spare that is ready takes its node's
  // ranks, which is quicker where the program starts slowly.
  bool worker_to_spare = false;
  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

inline constexpr Duration kMaxTimeout = std::chrono::hours(24 * 365);
// kInvalid: a core cannot be made for it.
Status CheckSpec(const JobSpec& spec);

// ---- What is on disk ---------------------------------------------------------------------------------------

struct Placement {  // of one rank
  Rank rank;
  std::string node;  // who holds it; empty: nobody yet
  std::string home;  // who held it at the job's start; failback brings it here
  Slot slot;
  Incarnation worker;
  friend bool operator==(const Placement&, const Placement&) = default;
};

enum class NodeState : uint8_t {
  kJoining,
  kHealthy,
  kSuspect,
  kFailed,
  kRepairing,
  kVerifying,
  kProbation,
  kQuarantined,
  kLeft
};
enum class Role : uint8_t { kNone, kActive, kSpare };
const char* NodeStateName(NodeState state);
const char* RoleName(Role role);

enum class JobPhase : uint8_t {
  kGathering,  // waiting for nodes and workers of the first generation
  kRunning,
  kStopping,    // a planned move: waiting for all ranks to park at `stop_at`
  kFreezing,    // generation `generation` is opening: waiting for every live rank to freeze
  kRecovering,  // R is fixed: waiting for every rank to verify
  kFinishing,   // every rank has called Finish, and that is on record
  kFinished,
  kFailed,
};
const char* JobPhaseName(JobPhase phase);

struct PersistentNode {
  std::string name;
  NodeState state = NodeState::kJoining;
  Role role = Role::kNone;
  Incarnation keeper;  // the newest seen
  std::string reason;  // why the state is what it is
  friend bool operator==(const PersistentNode&, const PersistentNode&) = default;
};

struct PersistentState {
  JobSpec spec;
  Term term;
  Incarnation cluster;
  Incarnation adopts;  // 0, or the cluster whose nodes are being taken over, and were once the job runs
  JobPhase phase = JobPhase::kGathering;
  Generation generation;  // the newest opened
  Step recovery_step;     // of that generation, once fixed
  bool recovery_fixed = false;
  std::vector<Placement> ranks;    // of that generation
  std::vector<Placement> leaving;  // who held ranks before and still holds state, until the generation has committed
  std::vector<Recovered> history;  // the generations that ran, and from where
  std::vector<PersistentNode> nodes;
  int exit_status = 0;  // when finished or failed
  std::string reason;   // why failed
  friend bool operator==(const PersistentState&, const PersistentState&) = default;
};

// kInvalid: no core has written that, and none can be made from it; what is wrong. All that a core persists passes.
Status CheckStored(const PersistentState& stored);

// ---- Events ------------------------------------------------------------------------------------------------

using StreamId = uint64_t;
struct NodeConnected {
  StreamId stream;
  NodeHello hello;
};
struct NodeLost {
  StreamId stream;
  std::string reason;
};
struct WorkerReady {
  StreamId stream;
  Slot slot;
  Incarnation worker;
  JoinInfo info;
};
struct NodeReported {
  StreamId stream;
  NodeReport report;
};
struct FailbackRequested {
  uint64_t request;
  std::string node;
};
// Takes over the nodes of a coordinator whose database is lost.
struct AdoptRequested {
  uint64_t request;
};
// What the store can take. While what was to be persisted waits, nothing that follows from it is sent; so nobody can
// answer, and deadlines stand still: facts are taken, and what follows from them is decided when it can be sent.
struct StoreChanged {
  std::string error;   // why it cannot be written; empty: it can
  bool waits = false;  // something to persist waits; else only less than that could not be written
};
struct StopRequested {
  std::string reason;
};  // SIGINT, SIGTERM: end nothing on record, only note it
struct Paused {
  Duration gap;
};  // this process itself did not run for that long: all deadlines start anew
struct Tick {};
using Event = std::variant<NodeConnected, NodeLost, WorkerReady, NodeReported, FailbackRequested, AdoptRequested,
                           StoreChanged, StopRequested, Paused, Tick>;

// Exit statuses of a job that the core itself ends; docs/operations.md has the table.
inline constexpr int kExitStateLost = 80;     // no complete copy of the state is left
inline constexpr int kExitProgramFault = 81;  // the program fails by itself wherever it runs: do not requeue

// ---- Actions -----------------------------------------------------------------------------------------------

struct Persist {
  std::shared_ptr<const PersistentState> state;
};
struct SendWelcome {
  StreamId stream;
  Welcome welcome;
};
struct RefuseNode {  // tell it and close the stream
  StreamId stream;
  std::string reason;
  bool end = false;  // what it still runs is over, too; else a node that trains goes on and asks again later
};
struct SendOrder {
  StreamId stream;
  NodeOrder order;
};
// One line of the history. `name` is stable; figures are integers with their unit in the key ("bytes", "duration_ns").
struct Note {
  std::string name, node;
  Rank rank = kNoRank;
  Incarnation keeper, agent, worker;
  Generation generation;
  Step step;
  std::string reason;
  std::vector<std::pair<std::string, int64_t>> figures;
  std::vector<std::pair<std::string, std::string>> details;
};
// What the history says of a job that has ended.
Note EndNote(const PersistentState& ended);
struct WakeAt {
  Time when;
};  // a Tick is wanted then; replaces the previous wish
struct Answer {
  uint64_t request;
  Status status;
};
struct EndJob {
  int exit_status;
  std::string reason;
};  // nothing more to decide; the process may end
using Action = std::variant<Persist, SendWelcome, RefuseNode, SendOrder, Note, WakeAt, Answer, EndJob>;

// ---- What can be seen ----------------------------------------------------------------------------------------

struct NodeView {
  std::string name;
  NodeState state = NodeState::kJoining;
  Role role = Role::kNone;
  bool connected = false;
  std::string address;
  int32_t keeper_pid = 0, agent_pid = 0;
  Usage usage;
  std::string reason;  // why the state is what it is
  std::vector<WorkerReport> workers;
};
struct RankView {
  Rank rank;
  std::string node;
  Slot slot;
  Incarnation worker;
  int32_t worker_pid = 0;
  Step step;
  std::string log, step_log;
  uint64_t log_offset = 0;
};
// Something an operator should know; it is gone when its reason is.
struct AlarmView {
  std::string name;  // stable
  std::string node;  // empty: the job's
  std::string text;
  Duration age{};
  friend bool operator==(const AlarmView&, const AlarmView&) = default;
};
struct ClusterView {
  std::string job;
  JobPhase phase = JobPhase::kGathering;
  std::string waiting_for;  // what a person should know: "a spare to take rank 2", empty when nothing
  Step step;                // the newest committed by every rank
  Generation generation;
  Term term;
  uint32_t spares = 0;  // ready now
  bool has_loss = false;
  double loss = 0;  // rank 0's last
  int exit_status = 0;
  std::string reason;
  std::vector<NodeView> nodes;    // by name
  std::vector<RankView> ranks;    // by rank
  std::vector<AlarmView> alarms;  // by name and node
};

class Coordinator {
 public:
  // A new job, or with `stored` one that an earlier coordinator left. `cluster` and `term` come from the shell:
  // random, and stored term + 1. `spec` and `stored` have passed CheckSpec and CheckStored. The first actions (Persist)
  // come from the first Step.
  Coordinator(JobSpec spec, Term term, Incarnation cluster, std::optional<PersistentState> stored);
  ~Coordinator();
  std::vector<Action> Step(const Event& event, Time now);
  ClusterView View() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace locum
