#include "adapters/procfs/network_sensor.h"

#include "adapters/procfs/text_file.h"

namespace locum {

std::optional<NetTraffic> ParseNetDev(std::string_view net_dev, std::string_view interface_name) {
  NetTraffic sum;
  bool any = false;
  while (!net_dev.empty()) {
    std::string_view line = NextLine(&net_dev);
    size_t colon = line.rfind(':');  // an alias has one in its name
    if (colon == std::string_view::npos) continue;
    std::vector<std::string_view> name = Words(line.substr(0, colon));
    std::vector<std::string_view> counters = Words(line.substr(colon + 1));
    if (name.size() != 1 || counters.size() < 9) continue;
    if (interface_name.empty() ? name[0] == "lo" : name[0] != interface_name) continue;
    std::optional<uint64_t> received = ParseNumber(counters[0]), sent = ParseNumber(counters[8]);
    if (!received || !sent) continue;
    any = true;
    sum.received += *received;
    sum.sent += *sent;
  }
  if (!any) return std::nullopt;
  return sum;
}

}  // namespace locum
