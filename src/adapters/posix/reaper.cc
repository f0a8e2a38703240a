#include "adapters/posix/reaper.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adapters/posix/process_tree.h"

namespace locum {
namespace {

constexpr int kFirstPauseMs = 1;  // between two rounds of kill and wait
constexpr int kLastPauseMs = 50;
constexpr int kHeardMs =
    10'000;  // for a keeper to answer the last report, or to be dead once its descriptors are closed

class Reaper {
 public:
  explicit Reaper(const ReaperSetup& setup) : setup_(setup) {}

  void Run() {
    int signals = Isolate();
    if (!Start()) return;
    int pause = kFirstPauseMs;
    while (true) {
      if (ending_) KillDescendants({});
      Reap();
      if (childless_) break;
      // All that is left may be killed already; what it takes to die is not worth a spinning processor.
      int timeout = ending_ ? pause : -1;
      if (ending_) pause = std::min(pause * 2, kLastPauseMs);
      Wait(signals, timeout);
    }
    FromReaper report;
    report.kind = FromReaper::kEnded;
    report.started = started_;
    report.started_was_killed = started_was_killed_;
    report.joined_seen = joined_seen_;
    report.joined = joined_;
    Tell(report);
    if (!KeeperHeard()) ::unlink(setup_.keeper_socket.c_str());
  }

 private:
  // Its own session without a terminal; deaf to every signal that can be blocked. Returns a signalfd of SIGCHLD.
  int Isolate() {
    ::setsid();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::prctl(PR_SET_NAME, "locum-reaper");
    sigset_t all, child;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    CloseAllBut({setup_.control_fd, setup_.keeper_pidfd, setup_.lock_fd, setup_.program.output_fd});
    return ::signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
  }

  bool Start() {
    std::optional<SpawnError> error = Spawn(setup_.program, &worker_);
    FromReaper report;
    if (error) {
      report.kind = FromReaper::kNotStarted;
      report.status = error->status;
      std::strncpy(report.text, error->what.c_str(), sizeof report.text - 1);
    } else {
      report.kind = FromReaper::kStarted;
      report.pid = worker_;
    }
    // The log is the worker's. Our own errors have nowhere to go; a keeper's terminal is not ours to hold open.
    ::dup2(setup_.program.output_fd, 1);
    ::dup2(setup_.program.output_fd, 2);
    ::close(setup_.program.output_fd);
    Tell(report);
    return !error;
  }

  void Tell(const FromReaper& report) {
    ssize_t sent;
    do {
      sent = ::send(setup_.control_fd, &report, sizeof report, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
  }

  void Reap() {
    while (true) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0) {
        if (errno == EINTR) continue;
        childless_ = errno == ECHILD;
        return;
      }
      if (info.si_pid == 0) return;
      ProcessEnd end;
      (info.si_code == CLD_EXITED ? end.status : end.signal) = info.si_status;
      if (info.si_pid == worker_) {
        worker_reaped_ = true;
        started_ = end;
        started_was_killed_ = ending_;
        ending_ = true;
      } else if (info.si_pid == joined_pid_) {
        joined_ = end;
        joined_seen_ = true;
      }
    }
  }

  void Wait(int signals, int timeout_ms) {
    pollfd fds[] = {{signals, POLLIN, 0}, {ControlFd(), POLLIN, 0}, {setup_.keeper_pidfd, POLLIN, 0}};
    if (::poll(fds, ending_ ? 2 : 3, timeout_ms) <= 0) return;
    signalfd_siginfo drained;
    while (::read(signals, &drained, sizeof drained) > 0) {
    }
    if (fds[1].revents != 0) Obey();
    if (!ending_ && fds[2].revents != 0) ending_ = true;
  }

  // False: it is dead. A keeper that is killed in the same moment as its worker may take longer to die than the worker,
  // so only its answer tells that it lives.
  bool KeeperHeard() const {
    while (!deserted_) {
      pollfd fds[] = {{setup_.control_fd, POLLIN, 0}, {setup_.keeper_pidfd, POLLIN, 0}};
      if (::poll(fds, 2, kHeardMs) == 0) return true;  // alive, and busy or stopped
      ToReaper answer;
      ssize_t got = ::recv(setup_.control_fd, &answer, sizeof answer, MSG_DONTWAIT);
      if (got == sizeof answer && answer.kind == ToReaper::kHeard) return true;
      if (got == sizeof answer) continue;
      if (got >= 0 || (errno != EAGAIN && errno != EINTR) || fds[1].revents != 0) break;
    }
    pollfd fd{setup_.keeper_pidfd, POLLIN, 0};
    return ::poll(&fd, 1, kHeardMs) <= 0;
  }

  int ControlFd() const { return deserted_ ? -1 : setup_.control_fd; }

  void Obey() {
    ToReaper order;
    ssize_t got = ::recv(setup_.control_fd, &order, sizeof order, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != sizeof order) {  // the keeper is gone
      ending_ = deserted_ = true;
      return;
    }
    // Not waited for yet, so nobody else's pid.
    if (order.kind == ToReaper::kTerm && !worker_reaped_) ::kill(worker_, SIGTERM);
    if (order.kind == ToReaper::kKill) ending_ = true;
    if (order.kind == ToReaper::kJoined) joined_pid_ = order.pid;
  }

  const ReaperSetup& setup_;
  pid_t worker_ = 0;
  bool worker_reaped_ = false;
  pid_t joined_pid_ = -1;
  bool ending_ = false;
  bool deserted_ = false;
  bool childless_ = false;
  ProcessEnd started_;
  bool started_was_killed_ = false;
  ProcessEnd joined_;
  bool joined_seen_ = false;
};

}  // namespace

void RunReaper(const ReaperSetup& setup) {
  Reaper(setup).Run();
  ::_exit(0);
}

}  // namespace locum
