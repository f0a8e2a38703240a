// The keeper's children that hold workers: one reaper each, told and heard through its socket pair. When a reaper
// is killed, what it held becomes the keeper's, which is a child subreaper too, and is ended here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "adapters/posix/event_poll.h"
#include "adapters/posix/owned_fd.h"
#include "adapters/posix/reaper.h"
#include "ports/keeper_host.h"

namespace locum {

// What a joined worker shares with its node, kept for the agents to come.
struct WorkerLink {
  OwnedFd connection;
  OwnedFd page;
};

class WorkerProcesses {
 public:
  struct Setup {
    int keeper_pidfd = -1;
    int lock_fd = -1;
    std::string socket_path;
    std::string node;
    sigset_t mask{};  // of the workers
    bool restore_sigpipe = false;
    bool end_is_told = false;  // PidfdTellsEnd
  };
  using Emit = std::function<void(KeeperHostEvent)>;

  WorkerProcesses(EventPoll* poll, Setup setup, Emit emit);

  void Start(const StartWorker& start);
  void Term(Incarnation worker);
  void Kill(Incarnation worker);
  void KillReaper(Incarnation worker);
  void Drop(Incarnation worker) { workers_.erase(worker); }
  void Joined(Incarnation worker, int32_t pid, OwnedFd process, std::shared_ptr<WorkerLink> link);
  std::shared_ptr<WorkerLink> Link(Incarnation worker) const;

  // Any child of the keeper was waited for. True when it was a reaper.
  bool ChildEnded(pid_t pid, ProcessEnd end);
  // Something may hang below the keeper that belongs to nobody any more.
  void ExpectOrphans() { quiet_rounds_ = 0; }
  // Ends orphans, sparing reapers and `agent`; to be called again and again. Returns when to, kNever when all are gone.
  Time EndOrphans(pid_t agent, Time now);
  std::set<pid_t> Reapers() const;

 private:
  struct Entry {
    std::string log;
    pid_t reaper = 0;  // 0: no more
    pid_t started_pid = 0;
    OwnedFd control;
    EventPoll::Watch control_watch;
    int32_t joined_pid = 0;
    OwnedFd joined;  // pidfd
    EventPoll::Watch joined_watch;
    std::shared_ptr<WorkerLink> link;
    WorkerEnded end;    // what is known so far
    bool told = false;  // that it ended, or did not start
  };

  void NotStarted(Incarnation worker, int32_t status, const std::string& what);
  void Hear(Incarnation worker);
  void Tell(Entry* entry, const ToReaper& order);
  void EmitEnd(Incarnation worker, Entry* entry);

  EventPoll* poll_;
  Setup setup_;
  Emit emit_;
  std::map<Incarnation, Entry> workers_;
  int quiet_rounds_ = 2;  // rounds in a row that found no orphan; two are proof, one may have missed a fork
  Duration pause_ = std::chrono::milliseconds(1);
};

}  // namespace locum
