// Unix sockets that carry whole packets, and descriptors with them. Descriptors received are close-on-exec.
// Paths may be longer than sockaddr_un allows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/posix/owned_fd.h"
#include "base/ids.h"
#include "base/status.h"

namespace locum {

inline constexpr size_t kMaxPacketDescriptors = 4;

struct Packet {
  std::string bytes;
  std::vector<OwnedFd> descriptors;
};

// kUnavailable when nobody listens at `path`; tried until the deadline only while the queue of waiting
// connections is full.
Result<OwnedFd> ConnectSeqpacket(const std::string& path, Time deadline);
// Makes the socket file; kInvalid when it exists.
Result<OwnedFd> ListenSeqpacket(const std::string& path, int backlog);
// An invalid descriptor when nobody waits.
Result<OwnedFd> AcceptSeqpacket(int listener);

// True: sent. False: the peer's queue is full now; wait for POLLOUT. kUnavailable: the peer is gone. kInvalid: the
// packet is larger than the socket's buffer may be.
Result<bool> SendPacket(int fd, std::string_view bytes, const std::vector<int>& descriptors = {});

// Receives without waiting. Its buffer holds one packet of `max_bytes`; the memory is only touched as far as
// packets reach.
class PacketReceiver {
 public:
  explicit PacketReceiver(size_t max_bytes);
  // Nothing there: an empty optional. The peer is gone: kUnavailable. A packet over the limit: kInvalid.
  Result<std::optional<Packet>> Receive(int fd);

 private:
  size_t max_bytes_;
  std::unique_ptr<char[]> buffer_;
};

// Waits until `fd` is readable, or the deadline (kTimeout).
Status WaitPacket(int fd, Time deadline);

}  // namespace locum
