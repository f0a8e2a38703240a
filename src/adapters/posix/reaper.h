// The reaper: the parent of one worker, forked from the keeper without exec. It is a child subreaper, so whatever
// the worker forks, with setsid or twice, ends up below it. When the worker or the keeper dies, or the keeper says
// so, it ends everything below it, repeating kill and wait until the kernel says that no child is left, and only
// then tells the keeper. It holds the descriptor of the keeper's lock, so that a new keeper in the same directory
// waits for it; so it may remove the socket that a killed keeper has left there.
//
// Between it and the keeper is a SOCK_SEQPACKET pair with packets of the two structures below.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/posix/spawn.h"
#include "base/supervision.h"

namespace locum {

struct ToReaper {
  enum Kind : int32_t { kTerm = 1, kKill = 2, kJoined = 3, kHeard = 4 };  // kHeard: answers kEnded
  int32_t kind = 0;
  int32_t pid = 0;  // kJoined: whose end is wanted too, should it become the reaper's child
};

struct FromReaper {
  enum Kind : int32_t { kStarted = 1, kNotStarted = 2, kEnded = 3 };
  int32_t kind = 0;
  int32_t pid = 0;     // kStarted
  int32_t status = 0;  // kNotStarted
  ProcessEnd started;  // kEnded
  int32_t started_was_killed = 0;
  int32_t joined_seen = 0;
  ProcessEnd joined;
  char text[512] = {};  // kNotStarted
};

struct ReaperSetup {
  Program program;
  int control_fd = -1;
  int keeper_pidfd = -1;
  int lock_fd = -1;
  std::string keeper_socket;  // path
};

// Never returns; to be called in a freshly forked child of a process without threads.
[[noreturn]] void RunReaper(const ReaperSetup& setup);

}  // namespace locum
