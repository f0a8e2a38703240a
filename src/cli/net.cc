#include "cli/net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace locum {
namespace {

std::string Numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace

Result<HostPort> ParseHostPort(const std::string& text, const std::string& what) {
  size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return Invalid(what + ": '" + text + "': put brackets around an IPv6 address, as in [::1]:7000");
  }
  HostPort out{host, 0};
  std::string digits = colon == std::string::npos ? "" : text.substr(colon + 1);
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  if (host.empty() || digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return Invalid(what + ": '" + text + "' is not HOST:PORT, as in 10.0.0.1:7000");
  }
  return out;
}

std::string FormatHostPort(const std::string& host, uint16_t port) {
  return (host.find(':') != std::string::npos ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<std::string> InterfaceAddress(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return ErrnoStatus(errno, "cannot list the network interfaces");
  std::string v4, v6, names;
  bool exists = false;
  for (ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    std::string this_name = i->ifa_name;
    if ((", " + names + ",").find(", " + this_name + ",") == std::string::npos) {
      names += (names.empty() ? "" : ", ") + this_name;
    }
    if (this_name != name) continue;
    exists = true;
    if (i->ifa_addr == nullptr) continue;
    if (i->ifa_addr->sa_family == AF_INET && v4.empty()) v4 = Numeric(i->ifa_addr);
    if (i->ifa_addr->sa_family == AF_INET6 && v6.empty() &&
        !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr)) {
      v6 = Numeric(i->ifa_addr);
    }
  }
  ::freeifaddrs(list);
  if (!v4.empty()) return v4;
  if (!v6.empty()) return v6;
  if (!exists) return Invalid("--interface: there is no interface '" + name + "'; there are " + names);
  return Invalid("--interface: the interface '" + name + "' has no address");
}

Result<std::string> LocalAddressTowards(const HostPort& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  int rc = ::getaddrinfo(peer.host.c_str(), std::to_string(peer.port).c_str(), &hints, &found);
  if (rc != 0) return Invalid("cannot find the address of '" + peer.host + "': " + ::gai_strerror(rc));
  std::string address;
  int err = 0;
  for (addrinfo* i = found; i != nullptr && address.empty(); i = i->ai_next) {
    int fd = ::socket(i->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (::connect(fd, i->ai_addr, i->ai_addrlen) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      address = Numeric(reinterpret_cast<sockaddr*>(&own));
    } else {
      err = errno;
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  if (address.empty()) return ErrnoStatus(err, "no route to " + FormatHostPort(peer.host, peer.port));
  return address;
}

bool IsNumericAddress(const std::string& host) {
  unsigned char buffer[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), buffer) == 1 || ::inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

bool IsLoopback(const std::string& host) { return host == "::1" || host.rfind("127.", 0) == 0; }

Result<HostPort> ListenAddress(const Config& config) {
  if (!config.listen.empty()) {
    auto address = ParseHostPort(config.listen, "--listen");
    if (address.ok() && !IsNumericAddress(address->host)) {
      return Invalid("--listen: '" + address->host +
                     "' is not a numeric address; or name the interface by --interface");
    }
    return address;
  }
  if (config.interface_name.empty()) return HostPort{"127.0.0.1", static_cast<uint16_t>(config.port)};
  auto host = InterfaceAddress(config.interface_name);
  if (!host.ok()) return host.status();
  return HostPort{*host, static_cast<uint16_t>(config.port)};
}

}  // namespace locum
