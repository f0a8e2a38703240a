#include "adapters/procfs/memory_sensor.h"

#include <algorithm>

#include "adapters/procfs/text_file.h"

namespace locum {
namespace {

// "/a/b" -> {"/a/b", "/a", ""}, each behind `prefix`.
std::vector<std::string> UpToRoot(const std::string& prefix, std::string_view path) {
  std::vector<std::string> folders;
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  while (!path.empty() && path != "/") {
    folders.push_back(prefix + std::string(path));
    size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) break;
    path = path.substr(0, slash);
  }
  folders.push_back(prefix);
  return folders;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::optional<std::string> text = ReadTextFile(path);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  return ParseNumber(NextLine(&rest));  // "max" is no number, and no limit
}

std::optional<MemoryUse> ReadGroup(const std::string& folder, int version) {
  std::optional<uint64_t> limit = ReadNumber(folder + (version == 2 ? "/memory.max" : "/memory.limit_in_bytes"));
  std::optional<uint64_t> used = ReadNumber(folder + (version == 2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  // Cached file pages are given back under pressure, as MemAvailable assumes, too.
  std::optional<std::string> stat = ReadTextFile(folder + "/memory.stat");
  std::optional<uint64_t> cache =
      stat ? ParseKey(*stat, version == 2 ? "inactive_file" : "total_inactive_file") : std::nullopt;
  return MemoryUse{*used - std::min(*used, cache.value_or(0)), *limit};
}

}  // namespace

std::optional<MemoryUse> ParseMemInfo(std::string_view meminfo) {
  std::optional<uint64_t> total = ParseKey(meminfo, "MemTotal:");
  std::optional<uint64_t> available = ParseKey(meminfo, "MemAvailable:");
  constexpr uint64_t kMost = UINT64_MAX / 1024;
  if (!total || !available || *available > *total || *total > kMost) return std::nullopt;
  return MemoryUse{(*total - *available) * 1024, *total * 1024};
}

std::vector<MemoryGroup> ParseMemoryGroups(std::string_view proc_cgroup) {
  std::vector<MemoryGroup> groups;
  while (!proc_cgroup.empty()) {
    std::string_view line = NextLine(&proc_cgroup);  // hierarchy:controllers:path
    size_t first = line.find(':');
    size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    std::string_view path = line.substr(second + 1);
    if (path.empty() || path[0] != '/' || path.find("/..") != std::string_view::npos) continue;
    if (controllers == ",,") groups.push_back({2, UpToRoot("", path)});
    if (controllers.find(",memory,") != std::string::npos) groups.push_back({1, UpToRoot("/memory", path)});
  }
  return groups;
}

std::optional<uint64_t> ParseKey(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::vector<std::string_view> words = Words(NextLine(&text));
    if (words.size() >= 2 && words[0] == key) return ParseNumber(words[1]);
  }
  return std::nullopt;
}

MemoryUse ReadMemory(const std::string& root) {
  std::optional<std::string> meminfo = ReadTextFile(root + "/proc/meminfo");
  MemoryUse use = (meminfo ? ParseMemInfo(*meminfo) : std::nullopt).value_or(MemoryUse{});
  std::optional<std::string> cgroup = ReadTextFile(root + "/proc/self/cgroup");
  if (!cgroup) return use;
  for (const MemoryGroup& group : ParseMemoryGroups(*cgroup)) {
    for (const std::string& folder : group.folders) {
      std::optional<MemoryUse> limited = ReadGroup(root + "/sys/fs/cgroup" + folder, group.version);
      if (limited && limited->total > 0 && (use.total == 0 || limited->total < use.total)) use = *limited;
    }
  }
  return use;
}

}  // namespace locum
