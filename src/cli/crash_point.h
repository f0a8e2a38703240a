// A test hook (CONTRIBUTING.md): LOCUM_CRASH_AT="N[:FILE]" in the environment of a coordinator. From the Step on that first
// notes a fault_detected, the N-th Persist or SendOrder is not executed: the process kills itself instead. With FILE
// only if there is no such file yet; it is made first, so that the coordinator that is started again goes on.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/coordinator.h"

namespace locum {

class CrashPoint {
 public:
  CrashPoint() {
    const char* text = std::getenv("LOCUM_CRASH_AT");
    if (text == nullptr) return;
    char* end = nullptr;
    at_ = std::strtoull(text, &end, 10);
    if (*end == ':') file_ = end + 1;
  }
  void See(const std::vector<Action>& actions) {
    if (at_ == 0 || armed_) return;
    for (const Action& action : actions) {
      const Note* note = std::get_if<Note>(&action);
      armed_ |= note != nullptr && note->name == "fault_detected";
    }
  }
  void Pass() {
    if (!armed_ || ++passed_ != at_) return;
    if (!file_.empty()) {
      int fd = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (fd < 0) return;
      ::close(fd);
    }
    ::kill(::getpid(), SIGKILL);
  }

 private:
  uint64_t at_ = 0, passed_ = 0;
  bool armed_ = false;
  std::string file_;
};

}  // namespace locum
