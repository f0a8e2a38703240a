#include "adapters/procfs/disk_sensor.h"

#include <sys/statvfs.h>

#include <filesystem>

#include "adapters/procfs/text_file.h"

namespace locum {
namespace {

constexpr uint64_t kSectorBytes = 512;  // in /proc/diskstats, whatever the device has

}  // namespace

std::optional<DiskSpace> ReadDiskSpace(const std::string& directory) {
  struct statvfs info;
  if (::statvfs(directory.c_str(), &info) != 0) return std::nullopt;
  uint64_t used = (info.f_blocks - info.f_bfree) * info.f_frsize;
  return DiskSpace{used, used + info.f_bavail * info.f_frsize};
}

std::optional<DiskTraffic> ParseDiskStats(std::string_view diskstats,
                                          const std::function<bool(const std::string&)>& counts) {
  DiskTraffic sum;
  bool any = false;
  while (!diskstats.empty()) {
    // major minor name reads merged sectors_read ms writes merged sectors_written ...
    std::vector<std::string_view> words = Words(NextLine(&diskstats));
    if (words.size() < 10) continue;
    std::optional<uint64_t> read = ParseNumber(words[5]), written = ParseNumber(words[9]);
    if (!read || !written) continue;
    any = true;
    if (!counts(std::string(words[2]))) continue;
    sum.read += *read * kSectorBytes;
    sum.written += *written * kSectorBytes;
  }
  if (!any) return std::nullopt;
  return sum;
}

bool IsBaseDisk(const std::string& root, const std::string& name) {
  for (const char* prefix : {"loop", "ram", "zram"}) {
    if (name.rfind(prefix, 0) == 0) return false;
  }
  if (name.find("..") != std::string::npos) return false;
  std::string file = name;
  for (char& c : file) {
    if (c == '/') c = '!';
  }
  std::error_code error;
  std::filesystem::path block = root + "/sys/block/" + file;
  if (!std::filesystem::exists(block, error)) return false;
  return std::filesystem::is_empty(block / "slaves", error) || error;
}

}  // namespace locum
