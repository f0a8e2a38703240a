// A coordinator for tests: the test process listens on a Unix socket, and the agent under test connects to it by a
// CoordinatorLink that carries the link's calls and events as packets.
#pragma once

#include <memory>
#include <string>

#include "adapters/posix/owned_fd.h"
#include "adapters/posix/seqpacket.h"
#include "ports/coordinator_link.h"

namespace locum::test {

std::unique_ptr<CoordinatorLink> MakeFakeLink(const std::string& socket_path);

// One agent's connection, as the test sees it.
class FakeCoordinator {
 public:
  explicit FakeCoordinator(const std::string& socket_path);

  // Waits for the next agent to connect and say hello. False after `patience`.
  bool AwaitAgent(Duration patience);
  void Disconnect();
  void Send(const LinkEvent& event);
  // Reads what the agent has sent until `until` is true of this object.
  template <class F>
  bool Await(Duration patience, F until) {
    Time deadline = Deadline(patience);
    while (!until(*this)) {
      if (!ReadOne(deadline)) return until(*this);
    }
    return true;
  }

  const NodeHello& hello() const { return hello_; }
  const NodeReport& report() const { return report_; }
  int reports() const { return reports_; }
  int readies() const { return readies_; }
  const JoinInfo& ready() const { return ready_; }
  // The report of a slot's worker, or an empty one.
  WorkerReport Worker(uint32_t slot) const;

 private:
  static Time Deadline(Duration patience);
  bool ReadOne(Time deadline);

  PacketReceiver receiver_;
  OwnedFd listener_;
  OwnedFd agent_;
  NodeHello hello_;
  NodeReport report_;
  JoinInfo ready_;
  int reports_ = 0;
  int readies_ = 0;
};

}  // namespace locum::test
