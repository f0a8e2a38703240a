#include "cli/stop_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace locum {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void BlockStopSignals() {
  sigset_t set = StopSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

StopWatch::StopWatch(int parent_pidfd, std::function<void(const std::string&, int)> stop)
    : parent_(parent_pidfd), stop_(std::move(stop)) {
  BlockStopSignals();
  sigset_t set = StopSignals();
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  LOCUM_CHECK(signals_ >= 0 && end_ >= 0);
  thread_ = std::thread([this] { Watch(); });
}

StopWatch::~StopWatch() {
  uint64_t one = 1;
  LOCUM_CHECK(::write(end_, &one, sizeof one) == static_cast<ssize_t>(sizeof one));
  thread_.join();
  ::close(signals_);
  ::close(end_);
}

void StopWatch::Watch() {
  bool told = false;
  pollfd fds[3] = {{end_, POLLIN, 0}, {signals_, POLLIN, 0}, {parent_, POLLIN, 0}};
  while (true) {
    int n = ::poll(fds, 3, -1);
    if (n < 0 && errno == EINTR) continue;
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) {
      signalfd_siginfo info{};
      if (::read(signals_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
      int signal = static_cast<int>(info.ssi_signo);
      if (told) ::_exit(128 + signal);
      told = true;
      stop_(signal == SIGINT ? "SIGINT" : signal == SIGHUP ? "SIGHUP" : "SIGTERM", 128 + signal);
    }
    if (fds[2].revents != 0) {
      fds[2].fd = -1;
      if (!told) stop_("the process that started this one has ended", 128 + SIGTERM);
      told = true;
    }
  }
}

}  // namespace locum
