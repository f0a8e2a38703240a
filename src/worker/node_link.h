// The worker's connection to its node: joins, and then one thread that takes orders and sends reports. It never
// waits for bulk work, and never for the node: while nobody reads, reports collapse into the newest.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "adapters/posix/mapping.h"
#include "adapters/posix/seqpacket.h"
#include "base/status.h"
#include "ports/worker_protocol.h"
#include "worker/protocol.h"

namespace locum {

struct Joined {
  OwnedFd socket;
  Mapping page;
  WorkerWelcome welcome;
};

// Connects, introduces itself and takes the welcome. kUnavailable: nobody there; kRefused: the node's reason.
Result<Joined> JoinNode(const std::string& path, Incarnation worker, Duration timeout);

class NodeLink {
 public:
  // `housekeeping` runs on the link's thread each time it wakes, and again within the time that it returns; must be
  // short.
  NodeLink(int socket, int wake, Protocol* protocol, std::function<std::optional<Duration>()> housekeeping)
      : socket_(socket), wake_(wake), protocol_(*protocol), housekeeping_(std::move(housekeeping)) {}
  ~NodeLink() { Stop(); }

  Status Start();
  // Before Protocol::Ready: what the Ready message will say.
  void SetJoinInfo(const JoinInfo& info) { ready_packet_ = EncodeReady(info); }
  void Stop();

 private:
  void Run();
  Status TakePackets();
  Status Take(const Packet& packet);
  Status SendDue();

  const int socket_;
  const int wake_;
  Protocol& protocol_;
  const std::function<std::optional<Duration>()> housekeeping_;
  PacketReceiver receiver_{kMaxWorkerMessage};
  std::string ready_packet_;
  bool ready_sent_ = false;
  bool resend_ = false;
  std::string unsent_;  // a report the node's queue had no room for
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace locum
