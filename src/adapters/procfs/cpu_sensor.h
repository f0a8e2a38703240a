// How busy the machine's processors are, from /proc/stat.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace locum {

struct CpuTimes {
  uint64_t busy = 0;  // clock ticks of all processors since boot
  uint64_t idle = 0;  // waiting for a disk is idle, too
};

std::optional<CpuTimes> ParseCpuTimes(std::string_view proc_stat);

// The share of busy time between two readings, 0 to 1000.
uint32_t BusyPermille(const CpuTimes& before, const CpuTimes& now);

}  // namespace locum
