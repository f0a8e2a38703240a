#include "adapters/posix/strays.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include "adapters/posix/monotonic.h"
#include "adapters/posix/owned_fd.h"
#include "adapters/posix/pidfd.h"
#include "ports/worker_protocol.h"

namespace locum {
namespace {

constexpr size_t kMostEnvironment = 1u << 20;  // bytes looked at; the kernel allows a single string 128 KiB

bool StartedWith(pid_t pid, std::string_view variable) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/environ", static_cast<int>(pid));
  OwnedFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;
  std::string text(1, '\0');
  char part[16384];
  ssize_t n;
  while (text.size() < kMostEnvironment && (n = ::read(fd.get(), part, sizeof part)) > 0) {
    text.append(part, static_cast<size_t>(n));
  }
  text.push_back('\0');
  std::string whole(1, '\0');
  whole.append(variable).push_back('\0');
  return text.find(whole) != std::string::npos;
}

}  // namespace

std::vector<pid_t> FindStrays(const std::string& socket_path) {
  std::vector<pid_t> found;
  DIR* dir = ::opendir("/proc");
  if (dir == nullptr) return found;
  const std::string variable = std::string(kSocketVariable) + "=" + socket_path;
  while (dirent* entry = ::readdir(dir)) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    pid_t pid = std::atoi(entry->d_name);
    if (pid != ::getpid() && StartedWith(pid, variable)) found.push_back(pid);
  }
  ::closedir(dir);
  return found;
}

Result<size_t> EndStrays(const std::string& socket_path, Duration patience) {
  const std::string variable = std::string(kSocketVariable) + "=" + socket_path;
  const Time deadline = MonotonicNow() + patience;
  std::set<pid_t> seen;
  while (true) {
    const std::vector<pid_t> strays = FindStrays(socket_path);
    if (strays.empty()) return seen.size();
    for (pid_t pid : strays) {
      OwnedFd pin(PidfdOpen(pid));
      // The number may be another's by now; once pinned, it cannot become another's any more.
      if (pin.valid() && StartedWith(pid, variable)) PidfdSignal(pin.get(), SIGKILL);
      seen.insert(pid);
    }
    if (MonotonicNow() >= deadline) {
      std::string pids;
      for (pid_t pid : strays) pids += (pids.empty() ? "" : ", ") + std::to_string(pid);
      return Unavailable("processes of an earlier worker do not end, not even by SIGKILL: " + pids);
    }
    timespec pause{0, 5'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace locum
