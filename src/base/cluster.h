// What nodes report and what the coordinator orders, as plain values. Both directions carry whole states,
// never differences: a report replaces the one before it, an order says how things should be, so either may
// be repeated, and a late one does no harm.
//
// These structures are what the decisions in core/ and node/ see. The adapters turn them into bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/word.h"

namespace locum {

// Changes with every incompatible change of the agent-worker, agent-keeper, agent-coordinator or data protocol.
inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr const char* kVersion = "0.1.0";

inline constexpr uint32_t kMaxWorld = 65536;  // ranks of a job
inline constexpr int kMaxNodes = 16384;       // that one coordinator knows
inline constexpr int32_t kMaxExitStatus = 255, kMaxSignal = 127;

// ---- What a worker says once, when it has registered everything -------------------------------------------

struct Shard {
  std::string name;
  uint64_t bytes = 0;
  std::string group;  // replication group; "all" holds the same bytes on every rank
  friend bool operator==(const Shard&, const Shard&) = default;
};

struct JoinInfo {
  uint32_t protocol = 0;
  std::string library;      // version of the worker library
  std::string fingerprint;  // "key=value" lines: what must be equal for equal bits
  std::vector<Shard> shards;
  uint64_t layout_hash = 0;  // over names, sizes and groups, in order
  uint64_t total_steps = 0;  // 0: the program decides as it goes
  std::string data_address;  // "host:port" of its data port
  friend bool operator==(const JoinInfo&, const JoinInfo&) = default;
};

// ---- What a worker says again and again -------------------------------------------------------------------

// Where the trainer's own thread is. For display and for judging who is waited for, never for correctness.
enum class Position : uint8_t {
  kStarting = 0,      // before its first NextStep
  kComputing = 1,     // between NextStep and the first collective
  kInCollective = 2,  // said EnterCollective, has not committed
  kParked = 3,        // inside NextStep or Finish: it does not touch registered state
};

struct Holding {
  bool valid = false;  // false: the state is torn, or nothing was registered
  Generation generation;
  Step step;
  friend bool operator==(const Holding&, const Holding&) = default;
};

struct Verified {
  Generation generation;  // of the order it answers; 0: none
  Step step;
  uint64_t state_hash = 0;
  uint64_t bytes = 0;    // pulled; 0 when the state was already here
  int64_t begin_ns = 0;  // CLOCK_MONOTONIC of the node: first request
  int64_t end_ns = 0;    // last chunk verified and in place
  uint32_t retries = 0;  // times another source had to be taken
  Incarnation source;    // the last source that served
  friend bool operator==(const Verified&, const Verified&) = default;
};

// The answer to an echo order: random bytes sent to a peer's data port and compared when they came back.
struct Echo {
  uint64_t nonce = 0;  // of the order it answers; 0: none
  bool ok = false;
  uint64_t bytes = 0;
  int64_t duration_ns = 0;
  std::string error;
  friend bool operator==(const Echo&, const Echo&) = default;
};

struct WorkerState {
  Word word;
  Position position = Position::kStarting;
  Step starting;           // the step the trainer last began (seen in the page)
  Step stop_at{kMaxStep};  // the stop that was in force when `starting` was read
  Rank rank = kNoRank;
  Generation frozen;  // the newest generation it froze for; `holding` belongs to it
  Holding holding;
  Generation parked;  // the newest generation for which its trainer's thread waits in NextStep or Finish
  Verified verified;
  Generation cannot_pull;  // it tried every source of this generation's order in vain
  std::string pull_error;
  Generation connected;
  int64_t connected_ns = 0;
  Generation first_commit;  // the newest generation in which it has committed a step
  int64_t first_commit_ns = 0;
  Generation broken;  // the newest generation whose collective it reported broken
  Step broken_step;
  std::string broken_why;
  bool done = false;  // called Finish
  double loss = 0;    // last reported; for display
  bool has_loss = false;
  Echo echo;
  std::string error;  // the library cannot go on; the text for people
  friend bool operator==(const WorkerState&, const WorkerState&) = default;
};

// ---- What a node says -------------------------------------------------------------------------------------

struct WorkerExit {
  int32_t status = 0;  // exit status, when signal is 0
  int32_t signal = 0;
  bool stopped = false;  // this node ended it, by an order
  std::string what;      // "exit status 3", "killed by SIGSEGV", "cannot execute 'x': No such file or directory"
  std::string log_tail;
  friend bool operator==(const WorkerExit&, const WorkerExit&) = default;
};

enum class WorkerLife : uint8_t {
  kStarting = 0,  // the process runs; it has not registered everything yet
  kReady = 1,     // registered, in or past its first NextStep
  kExited = 2,    // gone, with everything below it
};

struct WorkerReport {
  Slot slot;
  Incarnation worker;
  int32_t pid = 0;  // the process that joined; before that, the one that was started
  WorkerLife life = WorkerLife::kStarting;
  std::optional<WorkerExit> exit;
  WorkerState state;
  std::string log;
  uint64_t log_offset = 0;  // size of the log when it was last told to run with a rank; 0 for the first generation
  std::string step_log;
  bool waits = false;   // its trainer has been in one collective for kWaitsAfter or longer
  bool mute = false;    // its library has not answered its node for timeouts.freeze: the process does not run
  bool stuck = false;   // SIGKILL was sent and it does not end: the kernel holds it, and it will never run again
  bool joined = false;  // called locum_join
  friend bool operator==(const WorkerReport&, const WorkerReport&) = default;
};

// Integers only: thresholds are decided on these.
struct Usage {
  int64_t when_ns = 0;                                   // CLOCK_MONOTONIC of the node; 0: not read yet
  uint32_t cpu_permille = 0;                             // of all processors, over the last interval
  uint64_t memory_used = 0, memory_total = 0;            // bytes
  uint64_t disk_used = 0, disk_total = 0;                // bytes, of the file system of the node's directory
  uint64_t disk_read_per_s = 0, disk_written_per_s = 0;  // bytes per second, all block devices
  uint64_t net_received_per_s = 0, net_sent_per_s = 0;   // bytes per second, the node's interface
  friend bool operator==(const Usage&, const Usage&) = default;
};

// A collective that lasts this long may be one that stands still.
inline constexpr Duration kWaitsAfter = std::chrono::milliseconds(50);
// A node reports that much more often while training stands still.
inline constexpr int kQuicker = 10;

struct NodeHello {
  std::string name;
  uint32_t protocol = 0;
  std::string version;
  std::string job;      // the job it already serves; empty for a fresh node
  Incarnation cluster;  // whom its live workers belong to; 0: it has none
  std::string address;  // the host part its workers advertise
  Incarnation keeper;
  Incarnation agent;
  int32_t keeper_pid = 0;
  int32_t agent_pid = 0;
  Term term;           // the highest it has obeyed
  uint32_t slots = 0;  // how many workers it can hold; 0: as many as the job asks for
  std::string dir;
};

struct NodeReport {
  Term term;                          // of the newest order obeyed
  uint64_t order = 0;                 // its sequence number
  std::vector<WorkerReport> workers;  // by slot
  Usage usage;
  bool leaving = false;  // it was told to end, and ends its workers
};

// ---- What the coordinator says ----------------------------------------------------------------------------

// Answer to NodeHello.
struct Welcome {
  Term term;
  std::string job;
  Incarnation cluster;
  Incarnation adopts;  // 0, or the cluster that an operator has told it to take over: its database is lost
  std::vector<std::string> command;
  uint32_t workers_per_node = 1;
  uint64_t seed = 0;
  Duration grace{};                // between SIGTERM and SIGKILL
  Duration heartbeat{};            // how often the node reports at least
  Duration collective_deadline{};  // to come out of a collective after an abort, before SIGKILL
  Duration park_deadline{};        // to come to NextStep after a freeze, before SIGKILL
  Duration freeze_deadline{};      // to answer a freeze, before SIGKILL
};

enum class Mode : uint8_t {
  kIdle = 0,     // wait in NextStep without a rank
  kFreeze = 1,   // keep the state as it is and report the holding
  kRecover = 2,  // bring the state to `recovery_step`, verify, report its hash
  kRun = 3,      // every rank is verified: train
  kFinish = 4,   // the job's end is on record: Finish may return
};

struct Peer {
  Rank rank;
  Incarnation worker;
  std::string address;  // of its data port
  friend bool operator==(const Peer&, const Peer&) = default;
};

inline constexpr Step kNoStop{kMaxStep};

struct WorkerOrder {
  Slot slot;
  Incarnation worker;       // whom `mode` and what follows it are meant for; another incarnation ignores them
  Incarnation retire;       // this incarnation must be ended
  bool hung = false;        // `retire` does not move any more: save its stacks, then SIGKILL without a grace
  bool expendable = false;  // another holds its state too: it may be ended for being late
  bool run = true;          // a worker should run in this slot
  std::string refuse;       // why this worker may not take part; it tells the program and ends
  Mode mode = Mode::kIdle;
  Generation generation;
  Rank rank = kNoRank;
  uint32_t world = 0;
  Step recovery_step;
  bool pull = false;          // the state of recovery_step is not here
  bool staged = false;        // pull beside the present state, copy when all of it is verified
  std::vector<Peer> sources;  // in the order to try
  std::vector<Peer> peers;    // kRun: all ranks, by rank
  Step stop_at = kNoStop;     // do not begin this step
  uint64_t echo_nonce = 0;    // not 0: echo with `echo_peer` and report
  Peer echo_peer;
  friend bool operator==(const WorkerOrder&, const WorkerOrder&) = default;
};

struct NodeOrder {
  Term term;
  uint64_t sequence = 0;
  std::vector<WorkerOrder> workers;  // by slot
  bool quick = false;                // training stands still: report kQuicker times as often
  bool shutdown = false;             // end the workers, then the node itself
  std::string reason;                // for the node's log
};

}  // namespace locum
