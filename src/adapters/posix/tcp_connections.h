// The TCP connections of this process as the kernel tells them, and shutting some of them down whoever owns the
// descriptor.
//
// A descriptor's number proves nothing: while it is looked at, another thread may close it and open something else
// under it. So every look is at a duplicate, and a connection is told by what it is (which socket, from where, to where).
// Listening sockets, sockets that were never connected, and everything that is not TCP are passed over.
#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace locum {

struct TcpEndpoint {
  std::array<uint8_t, 16> address{};  // IPv4 as an IPv6 address (::ffff:a.b.c.d), so that one socket has one name
  uint16_t port = 0;
  friend auto operator<=>(const TcpEndpoint&, const TcpEndpoint&) = default;
};

// Nothing unless it is IPv4 or IPv6.
std::optional<TcpEndpoint> EndpointOf(const sockaddr_storage& address);

struct TcpConnection {
  uint64_t socket = 0;  // which one among those that live: its inode
  TcpEndpoint local, peer;
  friend bool operator==(const TcpConnection&, const TcpConnection&) = default;
};

// Those that are up, and those that are still being made. Any thread. Costs a few system calls for each descriptor of the
// process.
Result<std::vector<TcpConnection>> TcpConnectionsOfThisProcess();

// Shuts down, for all holders of the socket and without closing any descriptor, what `wanted` says yes to; returns how
// many. Whoever waits for one of them wakes up: reading sees the end, writing and connecting fail.
Result<size_t> ShutDownTcpConnections(const std::function<bool(const TcpConnection&)>& wanted);

}  // namespace locum
