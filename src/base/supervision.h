// What the keeper and the agent of one node say to each other and see of their processes, as plain values. The
// keeper holds what must outlive an agent: the processes, their connections and pages, and the agent's notes.
// How these travel is ports/keeper_protocol.h; who decides on them is node/keeper_core.h and node/node_core.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cluster.h"
#include "base/ids.h"

namespace locum {

// ---- Agent to keeper ----------------------------------------------------------------------------------------

inline constexpr Duration kMaxGrace = std::chrono::hours(24);

struct StopWorker {
  Incarnation worker;
  Duration grace{};  // 0: SIGKILL at once; at most kMaxGrace
};

struct ForgetWorker {
  Incarnation worker;
};

// Stop all workers, then the agent, then the keeper, which ends with `status`.
struct ShutdownNode {
  Duration grace{};
  int32_t status = 0;
  std::string reason;  // printed by the keeper when `status` is not 0
};

// What an agent wants the next one to know. The keeper does not look into it.
inline constexpr size_t kMaxNotes = 64u << 10;
struct RememberNotes {
  std::string notes;
};

// ---- Keeper to agent ----------------------------------------------------------------------------------------

struct KeeperHello {
  Incarnation keeper;
  int32_t keeper_pid = 0;
  uint32_t agent_starts = 0;         // 1 for the first agent
  std::vector<Incarnation> workers;  // a record follows for each
  std::string notes;                 // of the agent before
};

struct WorkerRecord {
  Slot slot;
  Incarnation worker;
  int32_t pid = 0;      // the process that was started; the one that joined once `joined`
  bool joined = false;  // its packet carries two descriptors: the connection, the page
  bool stopping = false;
  bool stuck = false;  // killed, and the kernel does not let it end
  bool ended = false;
  WorkerExit exit;  // when ended
  std::string log;
  std::string step_log;
  friend bool operator==(const WorkerRecord&, const WorkerRecord&) = default;
};

// ---- What the keeper sees ---------------------------------------------------------------------------------

struct WorkerStarted {
  Incarnation worker;
  int32_t pid = 0;
};

// Nothing runs: the command could not be executed, or no process could be made.
struct WorkerNotStarted {
  Incarnation worker;
  int32_t status = 0;  // as a shell gives it: 127 not found, 126 not executable
  std::string what;
};

// How one process ended: by a signal, or with a status when `signal` is 0.
struct ProcessEnd {
  int32_t status = 0;
  int32_t signal = 0;
  friend bool operator==(const ProcessEnd&, const ProcessEnd&) = default;
};

struct AgentEnded {
  ProcessEnd end;
  std::string cannot_run;  // it could not be executed: why
};

// The worker is gone, with everything below it.
struct WorkerEnded {
  Incarnation worker;
  std::optional<ProcessEnd> started;  // the process that was started, if its end was seen
  bool started_was_killed = false;    // by its reaper, to clear away; its end says nothing about the worker's
  std::optional<ProcessEnd> joined;   // the process that joined, where that is another one and its end was seen
  bool reaper_lost = false;           // the reaper was killed first
  std::string log_tail;               // raw
};

// The process that joined is gone. What was started may still run.
struct JoinedEnded {
  Incarnation worker;
  bool end_is_told = false;  // how, will come with WorkerEnded, whoever waits for it
};

struct JoinAsked {
  uint64_t connection = 0;
  int32_t pid = 0;  // as the kernel says
  uint32_t protocol = 0;
  Incarnation worker;
  std::string library;
};

// A signal, or the death of the process that this keeper was told to live with.
struct EndAsked {
  int32_t signal = 0;  // 0: the parent is gone
};

// ---- What the agent sees ----------------------------------------------------------------------------------

// A worker's page (ports/page.h) at one moment.
struct PageReading {
  Incarnation worker;
  Word word;
  Position position = Position::kStarting;
  Step stop_at = kNoStop;  // read before `starting`
  Step starting;
  bool has_loss = false;
  double loss = 0;
};

}  // namespace locum
