// An agent's link to the coordinator: what src/adapters/grpc/link.cc does, over simulated streams.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ports/coordinator_link.h"
#include "sim/world.h"

namespace locum::sim {

class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(World* world, Machine node, std::function<void(LinkEvent)> deliver)
      : world_(world), node_(node), deliver_(std::move(deliver)) {}

  void Start(const NodeHello& hello);
  void UpdateHello(const NodeHello& hello) { hello_ = hello; }
  void ConnectAgain();
  void SendReady(Slot slot, Incarnation worker, const JoinInfo& info);
  void SendReport(const NodeReport& report);
  // Its process is gone.
  void End();
  bool up() const { return up_; }
  std::string Describe() const;

 private:
  void Attempt();
  void Welcomed(const Welcome& welcome);
  void Ended(const std::string& why);
  void After(Duration delay, void (Link::*what)());
  void GiveUp();

  World* const world_;
  const Machine node_;
  const std::function<void(LinkEvent)> deliver_;
  NodeHello hello_;
  std::shared_ptr<Stream> stream_;
  bool stopped_ = false, up_ = false, trying_ = false;
  uint64_t attempt_ = 0;
  Duration pause_{};
  std::string last_reason_;
  std::optional<LinkRefused> refused_;
};

}  // namespace locum::sim
