#include "adapters/tcp/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace locum {
namespace {

// Between processes of one machine, what is on its way should be little enough to stay in the processor's cache,
// and enough that neither side waits while the other hashes a chunk. Between machines the kernel fits its buffers
// to the path by itself, which setting them would switch off.
constexpr int kLocalBuffer = 1 << 20;

Status WaitFor(int fd, short events, Time deadline, const Cancel* cancel, const char* what) {
  while (true) {
    if (cancel && cancel->IsSet()) return Interrupted(std::string(what) + " was cancelled");
    const Duration left = deadline - TcpNow();
    if (left.count() <= 0) return Timeout(std::string(what) + ": the peer did not answer in time");
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
    pollfd polled[2] = {{fd, events, 0}, {cancel ? cancel->fd() : -1, POLLIN, 0}};
    const int n = ::ppoll(polled, 2, &timeout, nullptr);
    if (n < 0 && errno != EINTR) return ErrnoStatus(errno, "ppoll");
    if (n > 0 && polled[0].revents) return OkStatus();
  }
}

Status Failed(int error, const char* what) {
  const std::string text = std::string(what) + ": " + std::strerror(error);
  switch (error) {
    case ECONNREFUSED: case ECONNRESET: case EPIPE: case EHOSTUNREACH: case ENETUNREACH: case ETIMEDOUT:
    case ENETDOWN: case EHOSTDOWN: case ECONNABORTED:
      return Unavailable(text);
    default:
      return Internal(text);
  }
}

void SetOption(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

struct Ends {
  SocketAddress own, peer;
};

bool GetEnds(int fd, Ends* ends) {
  ends->own.length = ends->peer.length = sizeof(sockaddr_storage);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&ends->own.storage), &ends->own.length) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&ends->peer.storage), &ends->peer.length) == 0;
}

void Tune(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Ends ends;
  if (GetEnds(fd, &ends) && FromSocketAddress(ends.own).host == FromSocketAddress(ends.peer).host) {
    SetOption(fd, SOL_SOCKET, SO_RCVBUF, kLocalBuffer);
    SetOption(fd, SOL_SOCKET, SO_SNDBUF, kLocalBuffer);
  }
}

}  // namespace

Time TcpNow() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Time{static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
}

Result<TcpSocket> TcpSocket::Connect(const HostPort& peer, Time deadline, const Cancel* cancel) {
  Result<SocketAddress> address = ToSocketAddress(peer);
  if (!address.ok()) return address.status();
  const std::string what = "connecting to " + FormatAddress(peer);
  TcpSocket socket(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "socket");
  if (::connect(socket.fd_, reinterpret_cast<const sockaddr*>(&address->storage), address->length) != 0) {
    if (errno != EINPROGRESS) return Failed(errno, what.c_str());
    LOCUM_RETURN_IF_ERROR(WaitFor(socket.fd_, POLLOUT, deadline, cancel, what.c_str()));
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) return Failed(error, what.c_str());
  }
  // A port of the ephemeral range that nobody listens on any more can be connected to itself.
  Ends ends;
  if (GetEnds(socket.fd_, &ends) && FromSocketAddress(ends.own) == FromSocketAddress(ends.peer)) {
    return Unavailable(what + ": nobody listens there");
  }
  Tune(socket.fd_);
  return socket;
}

void TcpSocket::Close() {
  if (fd_ < 0) return;
  ::shutdown(fd_, SHUT_RDWR);
  ::close(fd_);
  fd_ = -1;
}

Status TcpSocket::Send(const void* head, size_t head_bytes, const void* data, size_t bytes, bool more, Time deadline,
                       const Cancel* cancel) {
  iovec parts[2] = {{const_cast<void*>(head), head_bytes}, {const_cast<void*>(data), bytes}};
  int first = head_bytes ? 0 : 1;
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
  while (first < 2 && parts[first].iov_len > 0) {
    msghdr message{};
    message.msg_iov = parts + first;
    message.msg_iovlen = parts[1].iov_len ? static_cast<size_t>(2 - first) : 1;
    const ssize_t n = ::sendmsg(fd_, &message, flags);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return Failed(errno, "sending");
      LOCUM_RETURN_IF_ERROR(WaitFor(fd_, POLLOUT, deadline, cancel, "sending"));
      continue;
    }
    size_t sent = static_cast<size_t>(n);
    while (first < 2 && sent >= parts[first].iov_len) sent -= parts[first++].iov_len;
    if (first < 2) {
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + sent;
      parts[first].iov_len -= sent;
    }
  }
  return OkStatus();
}

Status TcpSocket::Receive(void* data, size_t bytes, Time deadline, const Cancel* cancel) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(fd_, at, bytes, MSG_DONTWAIT);
    if (n == 0) return Unavailable("receiving: the peer closed the connection");
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return Failed(errno, "receiving");
      LOCUM_RETURN_IF_ERROR(WaitFor(fd_, POLLIN, deadline, cancel, "receiving"));
      continue;
    }
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return OkStatus();
}

Status TcpSocket::WaitReadable(Time deadline, const Cancel* cancel) {
  return WaitFor(fd_, POLLIN, deadline, cancel, "receiving");
}

TcpListener::~TcpListener() {
  if (fd_ >= 0) {
    ::shutdown(fd_, SHUT_RDWR);
    ::close(fd_);
  }
}

TcpListener& TcpListener::operator=(TcpListener&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(address_, other.address_);
  return *this;
}

Result<TcpListener> TcpListener::Listen(const HostPort& wanted, int backlog) {
  Result<SocketAddress> address = ToSocketAddress(wanted);
  if (!address.ok()) return address.status();
  TcpListener listener;
  listener.fd_ = ::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener.fd_ < 0) return ErrnoStatus(errno, "socket");
  SetOption(listener.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  auto* raw = reinterpret_cast<sockaddr*>(&address->storage);
  if (::bind(listener.fd_, raw, address->length) != 0 || ::listen(listener.fd_, backlog) != 0) {
    return ErrnoStatus(errno, "listening on " + FormatAddress(wanted));
  }
  SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (::getsockname(listener.fd_, reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  listener.address_ = FromSocketAddress(bound);
  return listener;
}

Result<TcpSocket> TcpListener::Accept() {
  while (true) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Tune(fd);
      return TcpSocket(fd);
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return TcpSocket();
    return ErrnoStatus(errno, "accept");
  }
}

}  // namespace locum
