#include "adapters/posix/stacks.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "adapters/posix/monotonic.h"
#include "adapters/posix/node_files.h"
#include "adapters/posix/owned_fd.h"

extern char** environ;

namespace locum {
namespace {

constexpr size_t kMostOfFile = 16u << 10;
constexpr const char* kUnwindSeconds = "2";  // a process in an odd state holds the unwinder, too

std::string Read(const std::string& path) {
  OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return "";
  std::string text(kMostOfFile, '\0');
  ssize_t n = ::read(fd.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::vector<std::string> Threads(pid_t pid) {
  std::vector<std::string> threads;
  const std::string task = "/proc/" + std::to_string(pid) + "/task";
  DIR* dir = ::opendir(task.c_str());
  if (dir == nullptr) return threads;
  while (dirent* entry = ::readdir(dir)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) threads.push_back(entry->d_name);
  }
  ::closedir(dir);
  std::sort(threads.begin(), threads.end(),
            [](const std::string& a, const std::string& b) { return std::atoi(a.c_str()) < std::atoi(b.c_str()); });
  return threads;
}

std::string KernelView(pid_t pid) {
  std::string text;
  for (const std::string& thread : Threads(pid)) {
    const std::string at = "/proc/" + std::to_string(pid) + "/task/" + thread + "/";
    const std::string stat = Read(at + "stat");
    const size_t name_end = stat.rfind(')');
    const std::string state = name_end == std::string::npos ? "?" : stat.substr(std::min(name_end + 2, stat.size()), 1);
    text += "thread " + thread + " '" + Read(at + "comm") + "' state " + state + ", waits in " + Read(at + "wchan") +
            ", system call " + Read(at + "syscall") + "\n";
    const std::string kernel = Read(at + "stack");
    if (!kernel.empty()) text += kernel + "\n";
  }
  return text.empty() ? "no thread can be seen\n" : text;
}

void Unwind(pid_t pid, int fd) {
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, fd, 1);
  ::posix_spawn_file_actions_adddup2(&files, fd, 2);
  const std::string target = std::to_string(pid);
  const char* words[] = {"timeout", "-s", "KILL", kUnwindSeconds, "eu-stack", "-p", target.c_str(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, "timeout", &files, nullptr, const_cast<char**>(words), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) return;
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

Status WriteStacks(pid_t pid, const std::string& path) {
  OwnedFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot open '" + path + "'");
  const std::string text = "process " + std::to_string(pid) + " at " + std::to_string(MonotonicNow().ns) +
                           " ns (monotonic), as the kernel sees it\n" + KernelView(pid) + "\nas eu-stack sees it\n";
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return ErrnoStatus(errno, "cannot write '" + path + "'");
  }
  Unwind(pid, fd.get());
  return OkStatus();
}

}  // namespace locum
