#include "cli/children.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "adapters/posix/process_tree.h"
#include "cli/files.h"

namespace locum {

Children::Children() : self_pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))) {
  LOCUM_CHECK(self_pidfd_ >= 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Children::~Children() { ::close(self_pidfd_); }

Result<pid_t> Children::Start(const std::vector<std::string>& words, const std::string& log, int keep_fd) {
  // Everything that allocates is done before the fork: this process has threads.
  std::vector<std::string> args = {"locum"};
  args.insert(args.end(), words.begin(), words.begin() + 1);
  args.insert(args.end(), {"--parent-pidfd", std::to_string(self_pidfd_)});
  args.insert(args.end(), words.begin() + 1, words.end());
  std::vector<char*> argv;
  for (std::string& word : args) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::string program = OwnProgram();
  int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0) return ErrnoStatus(errno, "cannot open " + log);
  int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  sigset_t none;
  ::sigemptyset(&none);
  pid_t pid = ::fork();
  if (pid == 0) {
    ::setsid();
    ::dup2(in, 0);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::fcntl(self_pidfd_, F_SETFD, 0);
    if (keep_fd >= 0) ::fcntl(keep_fd, F_SETFD, 0);
    // It ends by itself when the pidfd says that its parent is gone; one that is stopped must be woken to see that.
    ::prctl(PR_SET_PDEATHSIG, SIGCONT);
    ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  int err = errno;
  ::close(in);
  ::close(out);
  if (pid < 0) return ErrnoStatus(err, "cannot start a process");
  return pid;
}

std::vector<Children::Ended> Children::Reap() {
  std::vector<Ended> ended;
  int status = 0;
  for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0; pid = ::waitpid(-1, &status, WNOHANG)) {
    ended.push_back({pid, status});
  }
  return ended;
}

bool Children::None() const {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

void Children::KillAll() const { KillDescendants({}); }

}  // namespace locum
