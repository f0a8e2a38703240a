// The clock of all deadlines and of all times in messages. No system call where the kernel offers the vDSO.
#pragma once

#include <time.h>

#include "base/ids.h"

namespace locum {

inline Time MonotonicNow() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Time{static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
}

}  // namespace locum
