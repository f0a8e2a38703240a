#include "adapters/posix/worker_processes.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "adapters/posix/node_files.h"
#include "adapters/posix/pidfd.h"
#include "adapters/posix/process_tree.h"
#include "adapters/posix/seqpacket.h"

namespace locum {
namespace {

constexpr size_t kTailBytes = 2048;
constexpr int kRoundsOfProof = 2;
constexpr Duration kFirstPause = std::chrono::milliseconds(1);
constexpr Duration kLastPause = std::chrono::milliseconds(50);

Status ControlPair(OwnedFd* keeper_end, OwnedFd* reaper_end) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoStatus(errno, "cannot make a socket pair");
  }
  *keeper_end = OwnedFd(ends[0]);
  *reaper_end = OwnedFd(ends[1]);
  return OkStatus();
}

}  // namespace

WorkerProcesses::WorkerProcesses(EventPoll* poll, Setup setup, Emit emit)
    : poll_(poll), setup_(std::move(setup)), emit_(std::move(emit)) {}

void WorkerProcesses::NotStarted(Incarnation worker, int32_t status, const std::string& what) {
  workers_.at(worker).told = true;
  emit_(WorkerNotStarted{worker, status, what});
}

void WorkerProcesses::Start(const StartWorker& start) {
  Entry& entry = workers_[start.worker];
  entry.log = start.log;
  entry.end.worker = start.worker;
  OwnedFd log(::open(start.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) {
    return NotStarted(start.worker, 126, "cannot open the log '" + start.log + "': " + std::strerror(errno));
  }
  OwnedFd reaper_end;
  Status pair = ControlPair(&entry.control, &reaper_end);
  if (!pair.ok()) return NotStarted(start.worker, 126, pair.message());

  ReaperSetup setup;
  setup.program.command = start.command;
  setup.program.environment = EnvironmentWith({
      {kSocketVariable, setup_.socket_path},
      {kWorkerVariable, ToHex(start.worker.value)},
      {kNodeVariable, setup_.node},
      {kLocalRankVariable, std::to_string(start.slot.value)},
  });
  setup.program.output_fd = log.get();
  setup.program.mask = setup_.mask;
  setup.program.restore_sigpipe = setup_.restore_sigpipe;
  setup.control_fd = reaper_end.get();
  setup.keeper_pidfd = setup_.keeper_pidfd;
  setup.lock_fd = setup_.lock_fd;
  setup.keeper_socket = setup_.socket_path;
  pid_t pid = ::fork();
  if (pid == 0) RunReaper(setup);
  if (pid < 0) return NotStarted(start.worker, 126, std::string("cannot make a process: ") + std::strerror(errno));
  entry.reaper = pid;
  Incarnation worker = start.worker;
  entry.control_watch = poll_->Add(entry.control.get(), EPOLLIN, [this, worker](uint32_t) { Hear(worker); });
}

void WorkerProcesses::Hear(Incarnation worker) {
  Entry& entry = workers_.at(worker);
  FromReaper report;
  while (true) {
    ssize_t got = ::recv(entry.control.get(), &report, sizeof report, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof report) {
      // Its end closes the socket too; then there is nothing more to hear, and SIGCHLD says the rest.
      if (got >= 0 || errno != EAGAIN) entry.control_watch.Reset();
      return;
    }
    report.text[sizeof report.text - 1] = '\0';
    if (report.kind == FromReaper::kStarted) {
      entry.started_pid = report.pid;
      emit_(WorkerStarted{worker, report.pid});
    } else if (report.kind == FromReaper::kNotStarted) {
      NotStarted(worker, report.status, report.text);
    } else if (report.kind == FromReaper::kEnded) {
      Tell(&entry, ToReaper{ToReaper::kHeard, 0});
      entry.end.started = report.started;
      entry.end.started_was_killed = report.started_was_killed != 0;
      if (report.joined_seen != 0 && entry.joined_pid != entry.started_pid) entry.end.joined = report.joined;
      EmitEnd(worker, &entry);
    }
  }
}

void WorkerProcesses::EmitEnd(Incarnation worker, Entry* entry) {
  if (std::exchange(entry->told, true)) return;
  if (entry->joined.valid() && entry->joined_pid != entry->started_pid && !entry->end.joined) {
    entry->end.joined = PidfdEnd(entry->joined.get());
  }
  entry->joined_watch.Reset();
  entry->joined.Reset();
  entry->link.reset();
  entry->end.worker = worker;
  entry->end.log_tail = ReadTail(entry->log, kTailBytes);
  emit_(entry->end);
}

void WorkerProcesses::Tell(Entry* entry, const ToReaper& order) {
  if (!entry->control.valid()) return;
  ssize_t sent;
  do {
    sent = ::send(entry->control.get(), &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
}

void WorkerProcesses::Term(Incarnation worker) {
  auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  if (it->second.joined.valid()) {
    PidfdSignal(it->second.joined.get(), SIGTERM);
  } else {
    Tell(&it->second, ToReaper{ToReaper::kTerm, 0});
  }
}

void WorkerProcesses::Kill(Incarnation worker) {
  auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  Entry& entry = it->second;
  // The joined one need not be below the reaper: a wrapper may have had it started by another process.
  if (entry.joined.valid()) PidfdSignal(entry.joined.get(), SIGKILL);
  Tell(&entry, ToReaper{ToReaper::kKill, 0});
  if (entry.reaper > 0) ::kill(entry.reaper, SIGCONT);
}

void WorkerProcesses::KillReaper(Incarnation worker) {
  auto it = workers_.find(worker);
  if (it != workers_.end() && it->second.reaper > 0) ::kill(it->second.reaper, SIGKILL);
}

void WorkerProcesses::Joined(Incarnation worker, int32_t pid, OwnedFd process, std::shared_ptr<WorkerLink> link) {
  Entry& entry = workers_.at(worker);
  entry.joined_pid = pid;
  entry.joined = std::move(process);
  entry.link = std::move(link);
  Tell(&entry, ToReaper{ToReaper::kJoined, pid});
  entry.joined_watch = poll_->Add(entry.joined.get(), EPOLLIN, [this, worker](uint32_t) {
    Entry& gone = workers_.at(worker);
    gone.joined_watch.Reset();
    if (gone.joined_pid != gone.started_pid) emit_(JoinedEnded{worker, setup_.end_is_told});
  });
}

std::shared_ptr<WorkerLink> WorkerProcesses::Link(Incarnation worker) const {
  auto it = workers_.find(worker);
  return it == workers_.end() ? nullptr : it->second.link;
}

bool WorkerProcesses::ChildEnded(pid_t pid, ProcessEnd end) {
  for (auto& [worker, entry] : workers_) {
    if (entry.reaper == pid) {
      entry.reaper = 0;
      Hear(worker);
      if (!entry.told) {
        entry.end.reaper_lost = true;
        if (entry.joined.valid()) PidfdSignal(entry.joined.get(), SIGKILL);
        ExpectOrphans();
      }
      entry.control_watch.Reset();
      entry.control.Reset();
      return true;
    }
    if (!entry.end.reaper_lost || entry.told) continue;
    if (pid == entry.started_pid) entry.end.started = end;
    if (pid == entry.joined_pid && pid != entry.started_pid) entry.end.joined = end;
  }
  return false;
}

Time WorkerProcesses::EndOrphans(pid_t agent, Time now) {
  if (quiet_rounds_ >= kRoundsOfProof) return kNever;
  std::set<pid_t> spared = Reapers();
  if (agent > 0) spared.insert(agent);
  quiet_rounds_ = KillDescendants(spared) == 0 ? quiet_rounds_ + 1 : 0;
  if (quiet_rounds_ < kRoundsOfProof) {
    Time again = now + (quiet_rounds_ == 0 ? pause_ : Duration(0));
    pause_ = std::min(pause_ * 2, kLastPause);
    return again;
  }
  pause_ = kFirstPause;
  for (auto& [worker, entry] : workers_) {
    if (entry.reaper == 0 && entry.end.reaper_lost) EmitEnd(worker, &entry);
  }
  return kNever;
}

std::set<pid_t> WorkerProcesses::Reapers() const {
  std::set<pid_t> out;
  for (const auto& [worker, entry] : workers_) {
    if (entry.reaper > 0) out.insert(entry.reaper);
  }
  return out;
}

}  // namespace locum
