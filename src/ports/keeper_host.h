// What a keeper needs of the operating system: processes that can be watched and ended with all that is below them,
// a channel to the agent, and the door at which workers join. All from one thread; only Wait blocks.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/supervision.h"
#include "ports/keeper_protocol.h"

namespace locum {

using KeeperHostEvent = std::variant<StartWorker, StopWorker, ForgetWorker, ShutdownNode, RememberNotes, AgentEnded,
                                     WorkerStarted, WorkerNotStarted, WorkerEnded, JoinedEnded, JoinAsked, EndAsked>;

class KeeperHost {
 public:
  virtual ~KeeperHost() = default;
  virtual Time Now() = 0;
  // A random number, never 0.
  virtual uint64_t Draw() = 0;
  // Returns when something happened, at `until` at the latest.
  virtual std::vector<KeeperHostEvent> Wait(Time until) = 0;

  // The agent. What is told before it runs, or faster than it reads, waits for it; one that reads nothing at all
  // is ended. AgentEnded follows every StartAgent.
  virtual void StartAgent() = 0;
  virtual void LeaveAgent() = 0;  // closes the channel
  virtual void KillAgent() = 0;
  virtual void TellHello(const KeeperHello& hello) = 0;
  virtual void TellWorker(const WorkerRecord& record) = 0;  // with its descriptors while joined

  // Workers. Exactly one of WorkerNotStarted and WorkerEnded follows every StartWorker.
  virtual void StartWorker(const locum::StartWorker& start) = 0;
  virtual void TermWorker(Incarnation worker) = 0;  // SIGTERM to the process that joined, else to what was started
  virtual void KillWorker(Incarnation worker) = 0;
  virtual void KillReaper(Incarnation worker) = 0;
  virtual void DropWorker(Incarnation worker) = 0;
  virtual Status Admit(uint64_t connection, const WorkerWelcome& welcome) = 0;
  // Stops listening and removes the socket; who waits to be admitted or refused still does.
  virtual void CloseDoor() = 0;
  virtual void RefuseJoin(uint64_t connection, const std::string& text) = 0;

  // A line for the node's log, and one for people, on standard error.
  virtual void Log(const std::string& name, const std::string& text) = 0;
  virtual void Complain(const std::string& text) = 0;
};

}  // namespace locum
