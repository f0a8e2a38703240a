// Addresses. A node's own address comes from an interface or from a socket towards the coordinator, never from a look-up
// of its host name.
#pragma once

#include <string>

#include "adapters/config/config.h"
#include "base/status.h"

namespace locum {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// "10.0.0.1:7000", "[fe80::1]:7000", "head:7000". `what` names the flag in errors.
Result<HostPort> ParseHostPort(const std::string& text, const std::string& what);
std::string FormatHostPort(const std::string& host, uint16_t port);

// The first IPv4 address of a named interface, else its first IPv6 address that is not link-local.
Result<std::string> InterfaceAddress(const std::string& name);
// The address this machine uses towards `peer`.
Result<std::string> LocalAddressTowards(const HostPort& peer);
bool IsNumericAddress(const std::string& host);
bool IsLoopback(const std::string& host);
// Where the config has a coordinator listen.
Result<HostPort> ListenAddress(const Config& config);

}  // namespace locum
