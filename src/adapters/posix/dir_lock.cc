#include "adapters/posix/dir_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adapters/posix/monotonic.h"

namespace locum {
namespace {

constexpr int kAttempts = 100;

// An agent that was refused takes its lock file away while it holds it; then the lock on it is worth nothing.
bool IsNamed(int fd, const std::string& path) {
  struct stat held {
  }, named{};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

Result<OwnedFd> LockOnce(const std::string& directory, Duration patience) {
  std::string path = directory + "/keeper.lock";
  OwnedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return Invalid("directory '" + directory + "' cannot be written (" + path + ": " + std::strerror(errno) +
                   "); choose another one with --dir");
  }
  struct flock record {};
  record.l_type = F_WRLCK;
  record.l_whence = SEEK_SET;
  if (::fcntl(fd.get(), F_SETLK, &record) != 0) {
    if (errno != EACCES && errno != EAGAIN) return ErrnoStatus(errno, "cannot lock '" + path + "'");
    std::string holder;
    struct flock held {};
    held.l_type = F_WRLCK;
    held.l_whence = SEEK_SET;
    if (::fcntl(fd.get(), F_GETLK, &held) == 0 && held.l_type != F_UNLCK && held.l_pid > 0) {
      holder = " (process " + std::to_string(held.l_pid) + ")";
    }
    return Refused("directory '" + directory + "' is in use by a running agent" + holder +
                   "; end it, or choose another one with --dir");
  }
  Time deadline = MonotonicNow() + patience;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(errno, "cannot lock '" + path + "'");
    if (MonotonicNow() >= deadline) {
      return Refused("workers of an earlier agent in directory '" + directory +
                     "' have not ended yet; see which with `fuser " + path + "`");
    }
    timespec pause{0, 5'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return fd;
}

}  // namespace

Result<OwnedFd> LockDirectory(const std::string& directory, Duration patience) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Result<OwnedFd> fd = LockOnce(directory, patience);
    if (!fd.ok() || IsNamed(fd->get(), directory + "/keeper.lock")) return fd;
  }
  return Refused("directory '" + directory +
                 "': other agents start and fail there all the time; choose another one with --dir");
}

}  // namespace locum
