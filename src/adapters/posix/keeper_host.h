// The keeper's operating system. See ports/keeper_host.h.
#pragma once

#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/posix/agent_process.h"
#include "adapters/posix/event_poll.h"
#include "adapters/posix/join_door.h"
#include "adapters/posix/owned_fd.h"
#include "adapters/posix/worker_processes.h"
#include "ports/keeper_host.h"

namespace locum {

class PosixKeeperHost : public KeeperHost {
 public:
  struct Options {
    std::string dir;   // made if it is not there
    std::string name;  // the node's
    std::vector<std::string> agent_command;
    std::vector<std::pair<std::string, std::string>> agent_environment;  // beside this process's
    int parent_pidfd = -1;                                               // EndAsked when that process dies
  };
  // Takes the directory, makes this process a child subreaper, and from here on takes its SIGTERM, SIGINT, SIGHUP
  // and SIGCHLD as events. For processes with one thread. One object a process.
  static Result<std::unique_ptr<PosixKeeperHost>> Create(const Options& options);
  // Ends every process below this one, and removes the socket.
  ~PosixKeeperHost() override;

  Time Now() override;
  uint64_t Draw() override;
  std::vector<KeeperHostEvent> Wait(Time until) override;
  void StartAgent() override { agent_->Start(); }
  void LeaveAgent() override { agent_->Leave(); }
  void KillAgent() override { agent_->Kill(); }
  void TellHello(const KeeperHello& hello) override;
  void TellWorker(const WorkerRecord& record) override;
  void StartWorker(const locum::StartWorker& start) override { workers_->Start(start); }
  void TermWorker(Incarnation worker) override { workers_->Term(worker); }
  void KillWorker(Incarnation worker) override { workers_->Kill(worker); }
  void KillReaper(Incarnation worker) override { workers_->KillReaper(worker); }
  void DropWorker(Incarnation worker) override { workers_->Drop(worker); }
  Status Admit(uint64_t connection, const WorkerWelcome& welcome) override;
  void CloseDoor() override;
  void RefuseJoin(uint64_t connection, const std::string& text) override;
  void Log(const std::string& name, const std::string& text) override;
  void Complain(const std::string& text) override;

 private:
  PosixKeeperHost();
  Status Open(const Options& options);
  Status TakeSignals();
  void HearSignals();
  void WaitForChildren();

  std::string SocketPath() const { return dir_ + "/keeper.sock"; }

  std::string dir_;
  OwnedFd lock_;
  OwnedFd log_;
  OwnedFd own_pidfd_;
  OwnedFd signals_;
  OwnedFd parent_;
  sigset_t first_mask_{};
  bool restore_sigpipe_ = false;
  std::vector<KeeperHostEvent> events_;
  std::map<uint64_t, int32_t> callers_;  // pids of JoinAsked not answered yet
  EventPoll poll_;
  EventPoll::Watch signals_watch_;
  EventPoll::Watch parent_watch_;
  std::unique_ptr<JoinDoor> door_;
  std::unique_ptr<WorkerProcesses> workers_;
  std::unique_ptr<AgentProcess> agent_;
};

}  // namespace locum
