#include "adapters/posix/tcp_connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <thread>

#include "adapters/posix/owned_fd.h"

namespace locum {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address Loopback(int family) {
  Address a;
  a.storage.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) reinterpret_cast<sockaddr_in*>(&a.storage)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&a.storage)->sin6_addr = in6addr_loopback;
  a.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return a;
}

struct Listener {
  explicit Listener(int family, int backlog = 8) : fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address = Loopback(family);
    EXPECT_EQ(::bind(fd.get(), address.raw(), address.size), 0);
    EXPECT_EQ(::listen(fd.get(), backlog), 0);
    ::getsockname(fd.get(), address.raw(), &address.size);
  }
  OwnedFd fd;
  Address address;
};

struct Pair {
  explicit Pair(int family) {
    Listener listener(family);
    near = OwnedFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(near.get(), listener.address.raw(), listener.address.size), 0);
    far = OwnedFd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(far.valid());
  }
  bool Works() const {
    char byte = 'x';
    return ::send(near.get(), &byte, 1, MSG_NOSIGNAL) == 1 && ::recv(far.get(), &byte, 1, 0) == 1 &&
           ::send(far.get(), &byte, 1, MSG_NOSIGNAL) == 1 && ::recv(near.get(), &byte, 1, 0) == 1;
  }
  OwnedFd near, far;
};

std::optional<TcpEndpoint> NameOf(int fd, int (*which)(int, sockaddr*, socklen_t*)) {
  Address a;
  return which(fd, a.raw(), &a.size) == 0 ? EndpointOf(a.storage) : std::nullopt;
}

// What the process has, by its local end.
std::vector<TcpConnection> From(const TcpEndpoint& local) {
  Result<std::vector<TcpConnection>> all = TcpConnectionsOfThisProcess();
  EXPECT_TRUE(all.ok());
  std::erase_if(*all, [&](const TcpConnection& c) { return c.local != local; });
  return *all;
}

class Families : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(TcpConnections, Families, ::testing::Values(AF_INET, AF_INET6),
                         [](const auto& p) { return p.param == AF_INET ? "V4" : "V6"; });

TEST_P(Families, BothEnds_AreFoundWithTheirAddresses) {
  const Pair pair(GetParam());
  for (const int fd : {pair.near.get(), pair.far.get()}) {
    const std::vector<TcpConnection> found = From(*NameOf(fd, ::getsockname));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].peer, *NameOf(fd, ::getpeername));
  }
}

TEST_P(Families, ShutDown_WakesTheReaderAndLeavesOthersAlone) {
  const Pair pair(GetParam()), other(GetParam());
  const TcpConnection wanted = From(*NameOf(pair.near.get(), ::getsockname)).at(0);
  ssize_t got = -2;
  std::thread reader([&] {
    char byte;
    got = ::recv(pair.near.get(), &byte, 1, 0);
  });
  EXPECT_EQ(*ShutDownTcpConnections([&](const TcpConnection& c) { return c == wanted; }), 1u);
  reader.join();
  EXPECT_EQ(got, 0);
  EXPECT_TRUE(other.Works());
  EXPECT_FALSE(pair.Works());
}

TEST_P(Families, NumberThatMeansAnotherConnectionNow_IsNotTouched) {
  Pair pair(GetParam());
  const Pair other(GetParam());
  const TcpConnection recorded = From(*NameOf(pair.near.get(), ::getsockname)).at(0);
  ASSERT_EQ(::dup2(other.near.get(), pair.near.get()), pair.near.get());
  EXPECT_EQ(*ShutDownTcpConnections([&](const TcpConnection& c) { return c == recorded; }), 0u);
  EXPECT_TRUE(other.Works());
}

// The queue of a listener that nobody accepts from is full; who connects next waits.
TEST_P(Families, StillConnecting_IsFoundAndCanBeEnded) {
  Listener listener(GetParam(), 0);
  std::vector<OwnedFd> fill;
  for (int i = 0; i < 3; ++i) {
    fill.emplace_back(::socket(GetParam(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ::connect(fill.back().get(), listener.address.raw(), listener.address.size);
  }
  const OwnedFd fd(::socket(GetParam(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  int rc = 1;
  std::thread connecting([&] { rc = ::connect(fd.get(), listener.address.raw(), listener.address.size); });
  std::vector<TcpConnection> found;
  for (int i = 0; i < 5000 && found.empty(); ++i) {
    ::usleep(1000);
    if (const std::optional<TcpEndpoint> local = NameOf(fd.get(), ::getsockname); local && local->port)
      found = From(*local);
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].peer, *EndpointOf(listener.address.storage));
  EXPECT_FALSE(NameOf(fd.get(), ::getpeername));
  EXPECT_EQ(*ShutDownTcpConnections([&](const TcpConnection& c) { return c == found[0]; }), 1u);
  connecting.join();
  EXPECT_EQ(rc, -1);
}

TEST(TcpConnections, WhatIsNoConnectionOrNotTcp_IsPassedOver) {
  const size_t before = TcpConnectionsOfThisProcess()->size();
  Listener listener(AF_INET);
  const OwnedFd idle(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const OwnedFd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(udp.get(), listener.address.raw(), listener.address.size), 0);
  int local[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, local), 0);
  const OwnedFd a(local[0]), b(local[1]);
  EXPECT_EQ(TcpConnectionsOfThisProcess()->size(), before);
  EXPECT_EQ(*ShutDownTcpConnections([](const TcpConnection&) { return true; }), before);
  char byte = 'x';
  EXPECT_EQ(::send(a.get(), &byte, 1, 0), 1);
  EXPECT_EQ(::recv(b.get(), &byte, 1, 0), 1);
}

TEST(TcpConnections, V4ThroughAV6Socket_HasTheSameName) {
  Listener listener(AF_INET);
  const OwnedFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = reinterpret_cast<sockaddr_in*>(&listener.address.storage)->sin_port;
  ASSERT_EQ(::inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr), 1);
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&mapped), sizeof mapped), 0);
  const std::vector<TcpConnection> found = From(*NameOf(fd.get(), ::getsockname));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].peer, *EndpointOf(listener.address.storage));
}

}  // namespace
}  // namespace locum
