// The keeper's other child: the agent, and the channel to it.
#pragma once

#include <signal.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/posix/event_poll.h"
#include "adapters/posix/owned_fd.h"
#include "adapters/posix/seqpacket.h"
#include "adapters/posix/worker_processes.h"
#include "ports/keeper_host.h"

namespace locum {

class AgentProcess {
 public:
  struct Setup {
    std::vector<std::string> command;                              // gets "--keeper-fd N" appended
    std::vector<std::pair<std::string, std::string>> environment;  // beside this process's
    int log_fd = -1;                                               // its standard output and error
    sigset_t mask{};
    bool restore_sigpipe = false;
  };
  using Emit = std::function<void(KeeperHostEvent)>;

  AgentProcess(EventPoll* poll, Setup setup, Emit emit);

  void Start();
  void Leave();
  void Kill();
  // `link` travels along, and is kept until it has.
  void Tell(std::string packet, std::shared_ptr<WorkerLink> link);
  // The keeper's child `pid` was waited for. True when it was the agent.
  bool ChildEnded(pid_t pid, ProcessEnd end);
  pid_t pid() const { return pid_; }
  // Ends an agent that closed its channel and stays. Returns when to call it again.
  Time Sweep(Time now);

 private:
  struct Outgoing {
    std::string packet;
    std::shared_ptr<WorkerLink> link;
  };
  void Hear();
  void Flush();
  bool Deliver(const std::string& packet);

  EventPoll* poll_;
  Setup setup_;
  Emit emit_;
  PacketReceiver receiver_;
  pid_t pid_ = 0;
  OwnedFd channel_;
  EventPoll::Watch watch_;
  std::deque<Outgoing> queue_;
  Time kill_at_ = kNever;
};

}  // namespace locum
