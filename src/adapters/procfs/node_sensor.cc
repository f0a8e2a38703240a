#include "adapters/procfs/node_sensor.h"

#include <time.h>

#include <utility>

#include "adapters/procfs/memory_sensor.h"
#include "adapters/procfs/text_file.h"

namespace locum {

NodeSensor::NodeSensor(std::string directory, std::string interface_name, std::string root)
    : directory_(std::move(directory)), interface_(std::move(interface_name)), root_(std::move(root)) {}

Usage NodeSensor::Read() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return ReadAt(now.tv_sec * 1'000'000'000ll + now.tv_nsec);
}

Usage NodeSensor::ReadAt(int64_t now_ns) {
  Usage usage;
  usage.when_ns = now_ns;
  int64_t elapsed = last_ns_ == 0 ? 0 : now_ns - last_ns_;
  last_ns_ = now_ns;
  auto read = [&](const char* path) { return ReadTextFile(root_ + path).value_or(""); };

  std::optional<CpuTimes> cpu = ParseCpuTimes(read("/proc/stat"));
  if (cpu && cpu_) usage.cpu_permille = BusyPermille(*cpu_, *cpu);
  cpu_ = cpu;

  MemoryUse memory = ReadMemory(root_);
  usage.memory_used = memory.used;
  usage.memory_total = memory.total;

  if (std::optional<DiskSpace> space = ReadDiskSpace(directory_)) {
    usage.disk_used = space->used;
    usage.disk_total = space->total;
  }
  std::optional<DiskTraffic> disk =
      ParseDiskStats(read("/proc/diskstats"), [&](const std::string& name) { return IsBaseDisk(root_, name); });
  if (disk && disk_) {
    usage.disk_read_per_s = PerSecond(disk_->read, disk->read, elapsed);
    usage.disk_written_per_s = PerSecond(disk_->written, disk->written, elapsed);
  }
  disk_ = disk;

  std::optional<NetTraffic> net = ParseNetDev(read("/proc/net/dev"), interface_);
  if (net && net_) {
    usage.net_received_per_s = PerSecond(net_->received, net->received, elapsed);
    usage.net_sent_per_s = PerSecond(net_->sent, net->sent, elapsed);
  }
  net_ = net;
  return usage;
}

}  // namespace locum
