// How much memory is in use, of what this node may use: of the machine (/proc/meminfo), or of the tightest control
// group above it that is smaller than the machine, version 1 or 2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace locum {

struct MemoryUse {
  uint64_t used = 0;
  uint64_t total = 0;
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

// Used is what is not available for new programs without swapping.
std::optional<MemoryUse> ParseMemInfo(std::string_view meminfo);

// The memory controller's folders that hold for a process, from its own group up to the root, relative to
// /sys/fs/cgroup; from /proc/self/cgroup. Version 1 groups come with the "memory" prefix of their mount.
struct MemoryGroup {
  int version = 2;
  std::vector<std::string> folders;
};
std::vector<MemoryGroup> ParseMemoryGroups(std::string_view proc_cgroup);

// A value of a "key value" file such as memory.stat.
std::optional<uint64_t> ParseKey(std::string_view text, std::string_view key);

// `root` stands before every path; "" but in tests.
MemoryUse ReadMemory(const std::string& root);

}  // namespace locum
