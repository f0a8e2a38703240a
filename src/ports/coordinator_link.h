// An agent's stream to the coordinator, as the agent sees it. The adapter keeps it connected: after a loss it
// tries again by itself, with the hello it was last given. Events may be delivered from any thread; whoever
// receives them queues them.
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "base/cluster.h"

namespace locum {

struct LinkUp {
  Welcome welcome;
};  // send everything anew: Ready of each ready worker, then a report
struct LinkOrder {
  NodeOrder order;
};
struct LinkRefused {
  std::string reason;
  bool end = false;  // the coordinator leads this node's job, and the job is over
};                   // the adapter asks again after a while, until it is stopped
struct LinkLost {
  std::string reason;
};  // the adapter is trying again
using LinkEvent = std::variant<LinkUp, LinkOrder, LinkRefused, LinkLost>;

class CoordinatorLink {
 public:
  virtual ~CoordinatorLink() = default;
  // Starts connecting. `deliver` is called until Stop has returned.
  virtual void Start(const NodeHello& hello, std::function<void(LinkEvent)> deliver) = 0;
  // What the next connection says; call it when the term or the job became known.
  virtual void UpdateHello(const NodeHello& hello) = 0;
  // Ends the connection if there is one; LinkLost follows, and the next connection says the newest hello.
  virtual void ConnectAgain() = 0;
  // None blocks. A report replaces one that is not sent yet. While the link is down both are dropped.
  virtual void SendReady(Slot slot, Incarnation worker, const JoinInfo& info) = 0;
  virtual void SendReport(const NodeReport& report) = 0;
  virtual void Stop() = 0;
};

}  // namespace locum
