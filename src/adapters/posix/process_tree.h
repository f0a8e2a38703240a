// Everything below a process, found by the parents that the kernel reports in /proc, and ended without ever hitting
// a stranger: a pid may be somebody else's by the time a signal is sent, so each is pinned by a pidfd and looked at
// again before.
//
// One pass may miss what is being forked meanwhile. Callers repeat until the kernel says they have no child left;
// since they are subreapers, whoever loses its parent becomes their child.
#pragma once

#include <sys/types.h>

#include <set>
#include <string_view>
#include <vector>

namespace locum {

struct ProcessLine {
  pid_t pid = 0;
  pid_t parent = 0;
  unsigned long long start = 0;  // clock ticks after boot
  char state = 0;
};

// A line of /proc/PID/stat. False when it is none; the command's name may hold blanks and parentheses.
bool ParseStatLine(std::string_view line, ProcessLine* out);

// All processes below `root`, without it and without `spared` children of it and what is below those.
std::vector<ProcessLine> Descendants(pid_t root, const std::set<pid_t>& spared);

// Sends SIGKILL to all processes below the calling one, but for `spared` children and what is below those. Returns
// how many were found alive or not yet waited for.
size_t KillDescendants(const std::set<pid_t>& spared);

}  // namespace locum
