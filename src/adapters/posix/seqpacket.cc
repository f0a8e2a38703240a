#include "adapters/posix/seqpacket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <cerrno>
#include <cstring>

#include "adapters/posix/monotonic.h"

namespace locum {
namespace {

constexpr int kSendBuffer = 8 << 20;  // as far as the kernel lets it grow

Result<OwnedFd> MakeSocket() {
  OwnedFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  return fd;
}

// The address of `path`; when it is too long, by way of its folder's descriptor, which must stay open meanwhile.
Status AddressOf(const std::string& path, sockaddr_un* address, OwnedFd* folder) {
  std::string name = path;
  address->sun_family = AF_UNIX;
  if (name.size() >= sizeof address->sun_path) {
    const size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    *folder = OwnedFd(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder->valid()) return Unavailable(parent + ": " + std::strerror(errno));
    name = "/proc/self/fd/" + std::to_string(folder->get()) + "/" +
           (slash == std::string::npos ? path : path.substr(slash + 1));
  }
  if (name.size() >= sizeof address->sun_path) return Invalid("socket name of '" + path + "' is too long");
  std::memcpy(address->sun_path, name.c_str(), name.size() + 1);
  return OkStatus();
}

}  // namespace

Result<OwnedFd> ConnectSeqpacket(const std::string& path, Time deadline) {
  Result<OwnedFd> fd = MakeSocket();
  if (!fd.ok()) return fd.status();
  sockaddr_un address{};
  OwnedFd folder;
  LOCUM_RETURN_IF_ERROR(AddressOf(path, &address, &folder));
  while (::connect(fd->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Unavailable("'" + path + "': " + std::strerror(errno));
    if (MonotonicNow() >= deadline) return Timeout("'" + path + "': too many are waiting to be accepted");
    const timespec pause{0, 5'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return fd;
}

Result<OwnedFd> ListenSeqpacket(const std::string& path, int backlog) {
  Result<OwnedFd> fd = MakeSocket();
  if (!fd.ok()) return fd.status();
  sockaddr_un address{};
  OwnedFd folder;
  LOCUM_RETURN_IF_ERROR(AddressOf(path, &address, &folder));
  if (::bind(fd->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EADDRINUSE) return Invalid("'" + path + "' exists already");
    return ErrnoStatus(errno, "bind '" + path + "'");
  }
  if (::listen(fd->get(), backlog) != 0) return ErrnoStatus(errno, "listen on '" + path + "'");
  return fd;
}

Result<OwnedFd> AcceptSeqpacket(int listener) {
  while (true) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
      return OwnedFd(fd);
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return OwnedFd();
    return ErrnoStatus(errno, "accept");
  }
}

Result<bool> SendPacket(int fd, std::string_view bytes, const std::vector<int>& descriptors) {
  LOCUM_CHECK(descriptors.size() <= kMaxPacketDescriptors && !bytes.empty());
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPacketDescriptors * sizeof(int))] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  while (true) {
    if (::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    switch (errno) {
      case EINTR: continue;
      case EAGAIN: return false;
      case EPIPE:
      case ECONNRESET:
      case ENOTCONN:
      case ECONNREFUSED: return Unavailable(std::string("the other side is gone: ") + std::strerror(errno));
      case EMSGSIZE:
        return Invalid("a message of " + std::to_string(bytes.size()) +
                       " bytes does not fit the socket; raise net.core.wmem_max to twice that");
      default: return ErrnoStatus(errno, "sendmsg");
    }
  }
}

PacketReceiver::PacketReceiver(size_t max_bytes) : max_bytes_(max_bytes), buffer_(new char[max_bytes]) {}

Result<std::optional<Packet>> PacketReceiver::Receive(int fd) {
  iovec part{buffer_.get(), max_bytes_};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPacketDescriptors * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n;
  do {
    n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return std::optional<Packet>();
  if (n < 0) return Unavailable(std::string("the other side is gone: ") + std::strerror(errno));
  Packet packet;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof received);
      packet.descriptors.emplace_back(received);
    }
  }
  // An empty packet is never sent, so this is the end.
  if (n == 0) return Unavailable("the other side closed the connection");
  if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
    return Invalid("a packet of more than " + std::to_string(max_bytes_) + " bytes, or with too many descriptors");
  }
  packet.bytes.assign(buffer_.get(), static_cast<size_t>(n));
  return std::optional<Packet>(std::move(packet));
}

Status WaitPacket(int fd, Time deadline) {
  while (true) {
    const Duration left = deadline - MonotonicNow();
    if (left.count() <= 0) return Timeout("no answer in time");
    pollfd polled{fd, POLLIN, 0};
    const int64_t ms = left.count() / 1'000'000 + 1;
    const int n = ::poll(&polled, 1, static_cast<int>(ms < 60'000 ? ms : 60'000));
    if (n < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (n > 0) return OkStatus();
  }
}

}  // namespace locum
