// The collectives of one generation. A round completes only when every rank has entered it and all reach each other; then
// each learns of it at a time of its own. A rank that leaves (dies, breaks, is broken out) takes the others' connections
// with it, as far as they are not cut.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/cluster.h"
#include "sim/network.h"

namespace locum::sim {

struct GangResult {
  Generation generation;
  uint64_t round = 0;
  bool ok = false;
  std::string why;
};

class GangMember {
 public:
  virtual ~GangMember() = default;
  virtual Machine machine() const = 0;
  virtual bool alive() const = 0;
  // For the round it is in; a late one is not meant for it any more.
  virtual void OnGang(const GangResult& result) = 0;
};

class Gang : public std::enable_shared_from_this<Gang> {
 public:
  static constexpr uint64_t kConnect = UINT64_MAX;  // the round in which the group is made

  Gang(Network* network, Generation generation, size_t world)
      : network_(network), generation_(generation), world_(world) {}
  void Enter(uint64_t round, const std::shared_ptr<GangMember>& member);
  void Leave(const GangMember* member, Machine machine, const std::string& why);
  // The network has changed.
  void Look();

 private:
  struct Round {
    std::vector<std::shared_ptr<GangMember>> entered;
    bool complete = false;
  };
  void TryComplete(uint64_t number, Round* round);
  bool HearsOfLeaving(const GangMember& member) const;
  void BreakWaiting();
  void Tell(const std::shared_ptr<GangMember>& member, uint64_t round, bool ok, Duration mean);

  Network* const network_;
  const Generation generation_;
  const size_t world_;
  std::map<uint64_t, Round> rounds_;  // of the running ones
  std::map<const GangMember*, Machine> left_;
  std::string why_;
};

// The gangs of a cluster, by what tells them apart: generation and members.
class Gangs {
 public:
  explicit Gangs(Network* network) : network_(network) {
    network->Watch([this] { Look(); });
  }
  std::shared_ptr<Gang> Of(Generation generation, const std::vector<Peer>& peers);
  void Look();

 private:
  Network* const network_;
  std::map<std::pair<Generation, std::vector<Incarnation>>, std::weak_ptr<Gang>> gangs_;
};

}  // namespace locum::sim
