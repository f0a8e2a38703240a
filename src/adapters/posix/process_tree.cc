#include "adapters/posix/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "adapters/posix/owned_fd.h"
#include "adapters/posix/pidfd.h"

namespace locum {
namespace {

bool ReadProcess(pid_t pid, ProcessLine* out) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  OwnedFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;
  char text[1024];
  ssize_t size = ::read(fd.get(), text, sizeof text);
  return size > 0 && ParseStatLine(std::string_view(text, static_cast<size_t>(size)), out);
}

}  // namespace

bool ParseStatLine(std::string_view line, ProcessLine* out) {
  size_t open = line.find('(');
  size_t close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return false;
  std::string head(line.substr(0, open)), tail(line.substr(close + 1));
  ProcessLine found;
  int parent = 0;
  if (std::sscanf(head.c_str(), "%d", &found.pid) != 1) return false;
  int fields =
      std::sscanf(tail.c_str(), " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                  &found.state, &parent, &found.start);
  if (fields != 3 || found.pid <= 0 || parent < 0) return false;
  found.parent = parent;
  *out = found;
  return true;
}

std::vector<ProcessLine> Descendants(pid_t root, const std::set<pid_t>& spared) {
  std::multimap<pid_t, ProcessLine> by_parent;
  DIR* dir = ::opendir("/proc");
  if (dir == nullptr) return {};
  while (dirent* entry = ::readdir(dir)) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    ProcessLine line;
    if (ReadProcess(std::atoi(entry->d_name), &line)) by_parent.emplace(line.parent, line);
  }
  ::closedir(dir);
  std::vector<ProcessLine> found;
  std::vector<pid_t> open = {root};
  while (!open.empty()) {
    pid_t parent = open.back();
    open.pop_back();
    auto [begin, end] = by_parent.equal_range(parent);
    for (auto it = begin; it != end; ++it) {
      if (parent == root && spared.count(it->second.pid) != 0) continue;
      found.push_back(it->second);
      open.push_back(it->second.pid);
    }
    by_parent.erase(begin, end);  // also ends the walk should a changing /proc show a ring
  }
  return found;
}

size_t KillDescendants(const std::set<pid_t>& spared) {
  std::vector<ProcessLine> found = Descendants(::getpid(), spared);
  for (const ProcessLine& process : found) {
    OwnedFd pin(PidfdOpen(process.pid));
    ProcessLine now;
    if (!pin.valid() || !ReadProcess(process.pid, &now) || now.start != process.start) continue;
    PidfdSignal(pin.get(), SIGKILL);
  }
  return found.size();
}

}  // namespace locum
