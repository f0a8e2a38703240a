// Descriptors of processes, by system call: the C library's header of Debian 12 does not declare its functions for C++.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace locum {

// -1 and errno when there is no such process.
inline int PidfdOpen(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

inline int PidfdSignal(int pidfd, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

}  // namespace locum
