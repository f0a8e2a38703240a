#include "worker/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace locum {
namespace {

std::atomic<bool> forked{false};
std::atomic<bool> installed{false};
std::array<std::atomic<int>, 64> guarded;  // descriptor + 1; 0: free

// Runs in the child of a process with many threads: only what is async-signal-safe.
void InChild() {
  forked.store(true, std::memory_order_relaxed);
  for (std::atomic<int>& entry : guarded) {
    const int fd = entry.exchange(0, std::memory_order_relaxed) - 1;
    if (fd >= 0) ::close(fd);
  }
}

}  // namespace

void InstallForkGuard() {
  if (!installed.exchange(true)) ::pthread_atfork(nullptr, nullptr, &InChild);
}

bool InForkedChild() { return forked.load(std::memory_order_relaxed); }

void CloseInForkedChildren(int fd) {
  if (fd < 0) return;
  for (std::atomic<int>& entry : guarded) {
    int free = 0;
    if (entry.compare_exchange_strong(free, fd + 1)) return;
  }
}

void ForgetInForkedChildren(int fd) {
  if (fd < 0) return;
  for (std::atomic<int>& entry : guarded) {
    int wanted = fd + 1;
    if (entry.compare_exchange_strong(wanted, 0)) return;
  }
}

}  // namespace locum
