#include "adapters/procfs/cpu_sensor.h"

#include "adapters/procfs/text_file.h"

namespace locum {

std::optional<CpuTimes> ParseCpuTimes(std::string_view proc_stat) {
  while (!proc_stat.empty()) {
    std::vector<std::string_view> words = Words(NextLine(&proc_stat));
    if (words.empty() || words[0] != "cpu") continue;
    // user nice system idle iowait irq softirq steal guest guest_nice; guests are counted in user and nice already.
    if (words.size() < 5) return std::nullopt;
    CpuTimes times;
    for (size_t i = 1; i < words.size() && i <= 8; ++i) {
      std::optional<uint64_t> ticks = ParseNumber(words[i]);
      if (!ticks) return std::nullopt;
      (i == 4 || i == 5 ? times.idle : times.busy) += *ticks;
    }
    return times;
  }
  return std::nullopt;
}

uint32_t BusyPermille(const CpuTimes& before, const CpuTimes& now) {
  // Idle and iowait may step back a little on some kernels.
  uint64_t busy = now.busy > before.busy ? now.busy - before.busy : 0;
  uint64_t idle = now.idle > before.idle ? now.idle - before.idle : 0;
  if (busy + idle == 0 || busy > UINT64_MAX / 1000) return 0;
  return static_cast<uint32_t>(busy * 1000 / (busy + idle));
}

}  // namespace locum
