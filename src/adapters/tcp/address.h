// "host:port" with a numeric host; "[host]:port" for IPv6. Names are never looked up: addresses come from the
// interface that an operator named.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace locum {

struct HostPort {
  std::string host;
  uint16_t port = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

std::string FormatAddress(const HostPort& address);
Result<HostPort> ParseAddress(const std::string& text);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};
Result<SocketAddress> ToSocketAddress(const HostPort& address);
HostPort FromSocketAddress(const SocketAddress& address);

}  // namespace locum
