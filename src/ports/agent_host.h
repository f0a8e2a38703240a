// What an agent needs of the operating system: the channel to its keeper, the connections and pages of its workers.
// All from one thread but Wake; only Wait blocks. Sending never does: an order that a worker does not take waits for
// it, and is replaced by the next one.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/supervision.h"
#include "ports/keeper_protocol.h"

namespace locum {

struct ReadyHeard {
  Incarnation worker;
  JoinInfo info;
};
struct StateHeard {
  Incarnation worker;
  WorkerState state;
};
struct ConnectionLost {
  Incarnation worker;
  std::string why;
};  // also when it sent what is no message
struct KeeperGone {};
struct StacksWritten {
  Incarnation worker;
};  // or it was tried in vain
// A PageReading comes unasked when a connection is closed: the last one of that worker.
using AgentHostEvent = std::variant<KeeperHello, WorkerRecord, ReadyHeard, StateHeard, ConnectionLost, PageReading,
                                    StacksWritten, KeeperGone>;

class AgentHost {
 public:
  virtual ~AgentHost() = default;
  virtual Time Now() = 0;
  virtual uint64_t Draw() = 0;  // random, never 0
  virtual std::vector<AgentHostEvent> Wait(Time until) = 0;
  virtual void Wake() = 0;  // any thread: ends a Wait, the present or the next one

  // To the keeper. An error means that it is gone, or that the message is too large for it.
  virtual Status Send(const StartWorker& start) = 0;
  virtual Status Send(const StopWorker& stop) = 0;
  virtual Status Send(const ForgetWorker& forget) = 0;
  virtual Status Send(const ShutdownNode& shutdown) = 0;
  virtual Status Send(const RememberNotes& notes) = 0;

  // To a worker that has joined; nothing happens for another one.
  virtual void Relay(Incarnation worker, const WorkerOrder& order) = 0;
  virtual void Abort(Incarnation worker, Generation generation) = 0;
  virtual void AskAgain(Incarnation worker) = 0;
  virtual std::vector<PageReading> ReadPages() = 0;
  // Stores `stop_at`, then reads (ports/page.h).
  virtual PageReading StoreStop(Incarnation worker, Step stop_at) = 0;

  // Where the threads of this process stand, appended to `path`. StacksWritten follows.
  virtual void SaveStacks(Incarnation worker, int32_t pid, const std::string& path) = 0;
  virtual uint64_t FileBytes(const std::string& path) = 0;
  virtual void Log(const std::string& name, const std::string& text) = 0;
};

}  // namespace locum
