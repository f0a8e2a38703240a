// All sensors of a node: reads them together and makes rates of what they count.
#pragma once

#include <optional>
#include <string>

#include "adapters/procfs/cpu_sensor.h"
#include "adapters/procfs/disk_sensor.h"
#include "adapters/procfs/network_sensor.h"
#include "ports/usage_sensor.h"

namespace locum {

class NodeSensor : public UsageSensor {
 public:
  // Disk space of `directory`, traffic of `interface_name` (empty: all but the loopback). `root` stands before every
  // path of /proc and /sys; "" but in tests.
  NodeSensor(std::string directory, std::string interface_name, std::string root = "");
  Usage Read() override;
  // The same, at a given CLOCK_MONOTONIC time.
  Usage ReadAt(int64_t now_ns);

 private:
  const std::string directory_;
  const std::string interface_;
  const std::string root_;
  int64_t last_ns_ = 0;
  std::optional<CpuTimes> cpu_;
  std::optional<DiskTraffic> disk_;
  std::optional<NetTraffic> net_;
};

}  // namespace locum
