#include "adapters/posix/tcp_connections.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "adapters/posix/owned_fd.h"

namespace locum {
namespace {

int OptionOf(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool IsTcp(int fd) {
  if (OptionOf(fd, SO_PROTOCOL) != IPPROTO_TCP) return false;
  const int domain = OptionOf(fd, SO_DOMAIN);
  return domain == AF_INET || domain == AF_INET6;
}

std::optional<TcpEndpoint> Ask(int fd, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (which(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return EndpointOf(address);
}

bool IsConnecting(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_SYN_SENT;
}

// As /proc/net/tcp and tcp6 print it: the address in words of the machine's byte order, the port as a number.
std::optional<TcpEndpoint> ParseEndpoint(const char* text, bool v6) {
  std::array<uint32_t, 4> words{};
  unsigned port = 0;
  const int fields = v6 ? std::sscanf(text, "%8x%8x%8x%8x:%x", &words[0], &words[1], &words[2], &words[3], &port)
                        : std::sscanf(text, "%8x:%x", &words[3], &port);
  if (fields != (v6 ? 5 : 2)) return std::nullopt;
  if (!v6) words[2] = htonl(0xffff);
  TcpEndpoint endpoint;
  std::memcpy(endpoint.address.data(), words.data(), sizeof words);
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

// Where a socket is connecting to: getpeername does not tell before it has come there, but the table does.
std::optional<TcpEndpoint> PeerInTable(int fd, uint64_t socket) {
  const bool v6 = OptionOf(fd, SO_DOMAIN) == AF_INET6;
  const std::unique_ptr<FILE, int (*)(FILE*)> table(std::fopen(v6 ? "/proc/self/net/tcp6" : "/proc/self/net/tcp", "re"),
                                                    std::fclose);
  char line[512], peer[64];
  while (table && std::fgets(line, sizeof line, table.get())) {
    unsigned long long inode = 0;
    if (std::sscanf(line, " %*[^ ] %*s %63s %*s %*s %*s %*s %*s %*s %llu", peer, &inode) == 2 && inode == socket) {
      return ParseEndpoint(peer, v6);
    }
  }
  return std::nullopt;
}

std::optional<TcpConnection> Describe(int fd) {
  struct stat file {};
  if (!IsTcp(fd) || ::fstat(fd, &file) != 0) return std::nullopt;
  const std::optional<TcpEndpoint> local = Ask(fd, ::getsockname);
  std::optional<TcpEndpoint> peer = Ask(fd, ::getpeername);
  if (!peer && IsConnecting(fd)) peer = PeerInTable(fd, file.st_ino);
  if (!local || !peer) return std::nullopt;
  return TcpConnection{file.st_ino, *local, *peer};
}

// A duplicate of a TCP socket, or nothing.
OwnedFd Duplicate(int fd) {
  if (!IsTcp(fd)) return {};
  OwnedFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  struct stat file {};
  // The number may have become a file's in between. Closing any descriptor of a file gives up all the locks that the
  // process has on it, so then this one stays open.
  if (own.valid() && ::fstat(own.get(), &file) == 0 && S_ISREG(file.st_mode)) own.Release();
  return own;
}

template <class F>
Status ForEach(F each) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir("/proc/self/fd"), ::closedir);
  if (!dir) return ErrnoStatus(errno, "/proc/self/fd");
  while (const dirent* entry = ::readdir(dir.get())) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    const OwnedFd own = Duplicate(std::atoi(entry->d_name));
    if (!own.valid()) continue;
    if (const std::optional<TcpConnection> found = Describe(own.get())) each(own.get(), *found);
  }
  return OkStatus();
}

}  // namespace

std::optional<TcpEndpoint> EndpointOf(const sockaddr_storage& address) {
  TcpEndpoint endpoint;
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    endpoint.address[10] = endpoint.address[11] = 0xff;
    std::memcpy(&endpoint.address[12], &v4.sin_addr, 4);
    endpoint.port = ntohs(v4.sin_port);
    return endpoint;
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof v6);
  std::memcpy(endpoint.address.data(), &v6.sin6_addr, 16);
  endpoint.port = ntohs(v6.sin6_port);
  return endpoint;
}

Result<std::vector<TcpConnection>> TcpConnectionsOfThisProcess() {
  std::vector<TcpConnection> found;
  LOCUM_RETURN_IF_ERROR(ForEach([&](int, const TcpConnection& c) { found.push_back(c); }));
  return found;
}

Result<size_t> ShutDownTcpConnections(const std::function<bool(const TcpConnection&)>& wanted) {
  size_t count = 0;
  LOCUM_RETURN_IF_ERROR(ForEach([&](int own, const TcpConnection& c) {
    if (wanted(c) && ::shutdown(own, SHUT_RDWR) == 0) ++count;
  }));
  return count;
}

}  // namespace locum
