// The processes that `locum run` starts: this program again, each in a session of its own (a Ctrl-C of the terminal
// reaches `run` alone, which ends the others in the right order), with a pidfd of `run` so that it sees its end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace locum {

class Children {
 public:
  // This process becomes a child subreaper: what its children leave behind becomes its own child.
  Children();
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Starts `locum words...` with "--parent-pidfd N" added; both outputs are appended to `log`.
  // `keep_fd` is a descriptor that it inherits under the same number; -1: none.
  Result<pid_t> Start(const std::vector<std::string>& words, const std::string& log, int keep_fd = -1);

  struct Ended {
    pid_t pid = 0;
    int status = 0;  // of waitpid
  };
  // All that have ended since the last call, adopted ones too.
  std::vector<Ended> Reap();
  // True when no child of any kind is left.
  bool None() const;
  // SIGKILL to every child that is left, adopted ones too.
  void KillAll() const;

 private:
  int self_pidfd_;
};

}  // namespace locum
