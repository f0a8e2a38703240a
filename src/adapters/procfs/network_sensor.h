// What an interface has received and sent, from /proc/net/dev.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace locum {

struct NetTraffic {
  uint64_t received = 0;  // bytes since the interface came up
  uint64_t sent = 0;
  friend bool operator==(const NetTraffic&, const NetTraffic&) = default;
};

// Of the named interface; of all but the loopback when the name is empty. Nothing when there is none.
std::optional<NetTraffic> ParseNetDev(std::string_view net_dev, std::string_view interface_name);

}  // namespace locum
