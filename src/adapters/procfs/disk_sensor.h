// How full the file system of the node's directory is, and what the machine's disks read and write.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace locum {

struct DiskSpace {
  uint64_t used = 0;
  uint64_t total = 0;  // without what only the superuser may fill
};
std::optional<DiskSpace> ReadDiskSpace(const std::string& directory);

struct DiskTraffic {
  uint64_t read = 0;  // bytes since boot
  uint64_t written = 0;
  friend bool operator==(const DiskTraffic&, const DiskTraffic&) = default;
};
// The sum over the devices that `counts` admits; nothing when no line makes sense.
std::optional<DiskTraffic> ParseDiskStats(std::string_view diskstats,
                                          const std::function<bool(const std::string&)>& counts);

// Whole devices that rest on no other: no partitions, no mappers, no loops, no memory disks, or bytes would be
// counted twice. `root` stands before /sys.
bool IsBaseDisk(const std::string& root, const std::string& name);

}  // namespace locum
