#include "adapters/posix/pidfd.h"

#include <sys/ioctl.h>
#include <sys/wait.h>

#include <cstdint>

#include "adapters/posix/owned_fd.h"

namespace locum {
namespace {

// struct pidfd_info of <linux/pidfd.h> in its first published size; Debian 12's headers are older.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup;
  uint32_t pid, tgid, ppid, ids[8];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kInfoExit = 1u << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

}  // namespace

std::optional<ProcessEnd> PidfdEnd(int pidfd) {
  PidfdInfo info{};
  info.mask = kInfoExit;
  if (::ioctl(pidfd, kGetInfo, &info) != 0 || (info.mask & kInfoExit) == 0) return std::nullopt;
  ProcessEnd end;
  if (WIFSIGNALED(info.exit_code)) {
    end.signal = WTERMSIG(info.exit_code);
  } else {
    end.status = WEXITSTATUS(info.exit_code);
  }
  return end;
}

bool PidfdTellsEnd() {
  pid_t child = ::fork();
  if (child == 0) ::_exit(3);
  if (child < 0) return false;
  OwnedFd pidfd(PidfdOpen(child));
  ::waitpid(child, nullptr, 0);
  std::optional<ProcessEnd> end = pidfd.valid() ? PidfdEnd(pidfd.get()) : std::nullopt;
  return end == ProcessEnd{3, 0};
}

}  // namespace locum
