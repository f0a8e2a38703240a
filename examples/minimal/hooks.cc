#include "hooks.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <stdexcept>

namespace {

const std::set<std::string> kPlaces = {"forward", "collective", "reduced", "update", "updated", "committed", "finish"};
const std::set<std::string> kActions = {"kill", "stop", "segv", "throw", "exit0", "exit3", "hold"};

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

// True when this call made it.
bool Make(const std::string& file) {
  const int fd = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

}  // namespace

Hooks Hooks::FromEnvironment() {
  Hooks hooks;
  const char* text = std::getenv("LOCUM_MINIMAL_HOOK");
  const char* dir = std::getenv("LOCUM_MINIMAL_HOOK_DIR");
  for (const std::string& one : Split(text ? text : "", ';')) {
    const std::vector<std::string> parts = Split(one, ':');
    const bool always = parts.size() == 5 && parts[4] == "always";
    if (!dir || (parts.size() != 4 && !always) || !kPlaces.count(parts[2]) || !kActions.count(parts[3])) {
      std::fprintf(stderr, "minimal: bad LOCUM_MINIMAL_HOOK '%s', or no LOCUM_MINIMAL_HOOK_DIR; see hooks.h\n", text);
      std::exit(2);
    }
    hooks.hooks_.push_back({static_cast<uint32_t>(std::strtoul(parts[0].c_str(), nullptr, 10)),
                            std::strtoull(parts[1].c_str(), nullptr, 10), parts[2], parts[3], always});
  }
  hooks.dir_ = dir ? dir : "";
  return hooks;
}

void Hooks::At(const char* place, uint32_t rank, uint64_t step) const {
  for (size_t i = 0; i < hooks_.size(); ++i) {
    const Hook& hook = hooks_[i];
    if (hook.rank == rank && hook.step == step && hook.place == place) Act(hook, dir_ + "/" + std::to_string(i));
  }
}

void Hooks::Act(const Hook& hook, const std::string& file) const {
  const std::string hold = file + ".hold", acted = file + ".acted";
  if (!hook.always && access(acted.c_str(), F_OK) == 0) return;
  if (hook.action == "hold") Make(hold);
  if (!Make(acted) && !hook.always) return;
  if (hook.action == "kill") raise(SIGKILL);
  if (hook.action == "stop") raise(SIGSTOP);
  if (hook.action == "segv") raise(SIGSEGV);
  if (hook.action == "throw") throw std::runtime_error("thrown by a hook at '" + hook.place + "'");
  if (hook.action == "exit0") std::exit(0);
  if (hook.action == "exit3") std::exit(3);
  while (access(hold.c_str(), F_OK) == 0) usleep(1000);
}
