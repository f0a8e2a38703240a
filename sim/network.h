// Who reaches whom, and the streams between agents and the coordinator: in order, held back while a direction is cut,
// ended by either side, by its process's death, or by a silence (keepalive).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/coordinator.h"
#include "sim/stage.h"

namespace locum::sim {

using Machine = int;  // a node's number
inline constexpr Machine kCoordinatorHost = -1;
// adapters/grpc/channel.cc: a ping after 2 s without traffic, 3 s for its answer.
inline constexpr Duration kKeepalive = std::chrono::seconds(5);
inline constexpr Duration kHop = std::chrono::microseconds(150);

class Network {
 public:
  explicit Network(Stage* stage) : stage_(stage) {}
  bool Passes(Machine from, Machine to) const { return from == to || !cuts_.count({from, to}); }
  bool Reach(Machine a, Machine b) const { return Passes(a, b) && Passes(b, a); }
  void Set(Machine from, Machine to, bool passes);
  // Called after each change.
  void Watch(std::function<void()> changed) { watchers_.push_back(std::move(changed)); }
  Stage* stage() const { return stage_; }

 private:
  Stage* const stage_;
  std::map<std::pair<Machine, Machine>, bool> cuts_;
  std::vector<std::function<void()>> watchers_;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // What one end is told that the other has ended, or is silent.
  using Closed = std::function<void(const std::string& why)>;

  Stream(Network* network, StreamId number, Machine machine) : id(number), node(machine), network_(network) {}
  const StreamId id;
  const Machine node;
  Closed agent_closed, coordinator_closed;
  std::function<void(const Welcome&)> welcomed;  // the agent
  std::function<void(const NodeOrder&)> ordered;
  std::function<void(const std::string& reason, bool end)> refused;

  // `is_report`: replaces one that waits to be sent.
  void Up(std::function<void()> deliver, bool is_report = false) { Send(&up_, std::move(deliver), is_report); }
  void Down(std::function<void()> deliver) { Send(&down_, std::move(deliver), false); }
  // This end is gone: it hears nothing any more, the other is told behind what was sent.
  void EndAgent(const std::string& why);
  void EndCoordinator(const std::string& why);
  bool open_at_agent() const { return agent_open_; }
  bool open_at_coordinator() const { return coordinator_open_; }
  // The network has changed.
  void Look();

 private:
  struct Message {
    Time when;
    std::function<void()> deliver;
    bool is_report = false;
  };
  struct Direction {
    Time clear{};
    std::deque<Message> queue;
  };
  bool Passes(const Direction* direction) const;
  void Send(Direction* direction, std::function<void()> deliver, bool is_report);
  void Pump(Direction* direction);
  void EndByKeepalive();

  Network* const network_;
  Direction up_, down_;
  bool agent_open_ = true, coordinator_open_ = true;
  Time cut_since_ = kNever;
};

}  // namespace locum::sim
