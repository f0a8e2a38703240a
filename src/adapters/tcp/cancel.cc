#include "adapters/tcp/cancel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace locum {

// Without a descriptor left the switch still works, only no poll wakes for it: operations see it at their
// deadline.
Cancel::Cancel() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Cancel::~Cancel() {
  if (fd_ >= 0) ::close(fd_);
}

void Cancel::Set() {
  if (set_.exchange(true, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  if (fd_ >= 0) [[maybe_unused]] ssize_t n = ::write(fd_, &one, sizeof one);
}

}  // namespace locum
