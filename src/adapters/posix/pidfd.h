// Descriptors of processes, by system call: the C library's header of Debian 12 does not declare its functions for C++.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>

#include "base/supervision.h"

namespace locum {

// -1 and errno when there is no such process.
inline int PidfdOpen(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

inline int PidfdSignal(int pidfd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

// How the process ended, once its parent has waited for it. Nothing before, and on kernels older than Linux 6.15.
std::optional<ProcessEnd> PidfdEnd(int pidfd);

// Whether this kernel can tell; asks it about a child that ends at once.
bool PidfdTellsEnd();

}  // namespace locum
