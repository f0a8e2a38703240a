#include "adapters/posix/node_files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "adapters/posix/owned_fd.h"
#include "base/check.h"

namespace locum {

void AppendLogLine(int fd, const std::string& who, const std::string& name, const std::string& text) {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  ::gmtime_r(&now.tv_sec, &utc);
  char when[64];
  size_t size = ::strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(when + size, sizeof when - size, ".%03ldZ", now.tv_nsec / 1'000'000);
  std::string line = std::string(when) + " " + who + " " + name;
  if (!text.empty()) line += " " + text;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  line += '\n';
  [[maybe_unused]] ssize_t written = ::write(fd, line.data(), line.size());  // a full disk ends no node
}

std::string ReadTail(const std::string& path, size_t limit) {
  OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  size_t size = static_cast<size_t>(info.st_size);
  std::string tail(size < limit ? size : limit, '\0');
  ssize_t got = ::pread(fd.get(), tail.data(), tail.size(), static_cast<off_t>(size - tail.size()));
  tail.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return tail;
}

uint64_t FileBytes(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

uint64_t DrawRandom() {
  uint64_t bits = 0;
  while (bits == 0) LOCUM_CHECK(::getrandom(&bits, sizeof bits, 0) == sizeof bits);
  return bits;
}

}  // namespace locum
