// The connections of the program's group: what a program without an abort call, or with one that does not help, is
// broken out of its collective by.
//
// Which connections are the group's is not asked of the program but seen: those that are new between the NextStep that
// tells it to connect and locum_connected; before that call, whatever is new up to now. Those of the library itself,
// told by the data ports they lead to, are never among them. What is recorded is the socket with both its addresses, so
// a descriptor that means something else by now is not touched, nor is anything that was opened before or after.
//
// Breaking belongs to one generation: once the trainer goes on to another, the record is the new one's, and a Break for
// the old does nothing. That needs the lock to be held while the kernel is asked; nothing in it waits.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "adapters/posix/tcp_connections.h"
#include "base/ids.h"

namespace locum {

class GroupConnections {
 public:
  // `own`: addresses of data ports, of this worker and of all that it has been told of. Called with the lock held.
  explicit GroupConnections(std::function<std::set<std::string>()> own) : own_(std::move(own)) {}

  // The trainer's thread goes on in `generation` and connects its group from here on.
  void Begin(Generation generation);
  // The group is connected. Only the first call in a generation counts.
  void Connected();
  // Any thread: shuts down what the group of `generation` has; returns how many connections that were.
  size_t Break(Generation generation);

 private:
  enum class Phase { kUnknown, kConnecting, kConnected };
  std::vector<TcpConnection> New() const;

  const std::function<std::set<std::string>()> own_;
  std::mutex mu_;
  Phase phase_ = Phase::kUnknown;
  Generation generation_;
  std::vector<TcpConnection> before_;  // while connecting
  std::vector<TcpConnection> group_;   // when connected
};

}  // namespace locum
