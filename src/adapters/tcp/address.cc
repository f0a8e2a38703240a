#include "adapters/tcp/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>

namespace locum {

std::string FormatAddress(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Result<HostPort> ParseAddress(const std::string& text) {
  const Status bad = Invalid("'" + text.substr(0, 128) + "' is not an address; write it as 192.0.2.1:7000 or [2001:db8::1]:7000");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  HostPort v;
  v.host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (v.host.front() == '[') {
    if (v.host.size() < 3 || v.host.back() != ']') return bad;
    v.host = v.host.substr(1, v.host.size() - 2);
  } else if (v.host.find(':') != std::string::npos) {
    return bad;
  }
  if (port.empty() || port.size() > 5) return bad;
  uint32_t number = 0;
  for (char c : port) {
    if (c < '0' || c > '9') return bad;
    number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  if (number > 65535) return bad;
  v.port = static_cast<uint16_t>(number);
  if (Result<SocketAddress> checked = ToSocketAddress(v); !checked.ok()) return checked.status();
  return v;
}

Result<SocketAddress> ToSocketAddress(const HostPort& address) {
  SocketAddress out;
  sockaddr_in v4{};
  if (::inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&out.storage, &v4, sizeof v4);
    out.length = sizeof v4;
    return out;
  }
  sockaddr_in6 v6{};
  std::string host = address.host;
  if (const size_t percent = host.find('%'); percent != std::string::npos) {
    v6.sin6_scope_id = ::if_nametoindex(host.c_str() + percent + 1);
    host.resize(percent);
  }
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    std::memcpy(&out.storage, &v6, sizeof v6);
    out.length = sizeof v6;
    return out;
  }
  return Invalid("'" + address.host.substr(0, 128) + "' is not a numeric IPv4 or IPv6 address");
}

HostPort FromSocketAddress(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  HostPort out;
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address.storage, sizeof v4);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    out.port = ntohs(v4.sin_port);
  } else if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address.storage, sizeof v6);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    out.port = ntohs(v6.sin6_port);
  }
  out.host = text;
  return out;
}

}  // namespace locum
