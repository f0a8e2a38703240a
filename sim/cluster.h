// A whole cluster in one thread, from one seed: the real decisions of coordinator, keepers and agents; processes, network,
// disk and workers are models. What is done to it is called by the names of tests/scenarios.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/control.h"
#include "sim/node.h"
#include "sim/watch.h"
#include "sim/worker.h"

namespace locum::sim {

class Cluster {
 public:
  Cluster(JobSpec spec, const Options& options);
  ~Cluster();

  void RunFor(Duration duration);
  // False when `limit` passes first.
  bool RunUntil(const std::function<bool()>& done, Duration limit);

  // To one node, by its name.
  Node& At(const std::string& name);
  bool Has(const std::string& name) const { return nodes_.count(name) != 0; }
  void AddNode(const std::string& name);  // one more, and starts it
  void Cut(const std::string& name);      // from everyone, silently
  void CutPeers(const std::string& name);
  void CutCoordinator(const std::string& name);
  void CutOut(const std::string& name);  // what it sends is lost
  void CutIn(const std::string& name);   // what is sent to it is lost
  void Heal(const std::string& name);
  void CutAllFromCoordinator();
  bool Whole(const std::string& name) const;  // nothing of its network is cut

  // To the workers that hold a rank, or did and do not know better: false where there is none.
  bool AtRank(Rank rank, const std::function<void(Worker&)>& what);
  std::shared_ptr<Worker> Holder(Rank rank) const;  // as the coordinator last recorded, if it has; or null

  std::vector<std::string> NodeNames() const;
  // Nodes that are reached and have a worker whose copy of the newest generation can be had.
  uint32_t Holders() const;
  std::string Describe() const;

  World& world() { return world_; }
  Control& control() { return control_; }
  Watch& watch() { return watch_; }
  const Watch& watch() const { return watch_; }
  Time now() const { return world_.stage.now(); }
  bool ended() const { return control_.ended(); }

 private:
  World world_;
  Watch watch_;
  Control control_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
  Machine last_machine_ = 0;
};

}  // namespace locum::sim
