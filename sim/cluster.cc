#include "sim/cluster.h"

#include <algorithm>
#include <set>

namespace locum::sim {

Cluster::Cluster(JobSpec spec, const Options& options)
    : world_(std::move(spec), options), watch_(&world_), control_(&world_) {
  world_.watch = &watch_;
  world_.control = &control_;
  control_.Start();
  for (uint32_t i = 0; i < world_.spec.nodes + world_.spec.spares; ++i) AddNode("node-" + std::to_string(i));
}

// The dead first: whoever waits in a collective holds on to the others.
Cluster::~Cluster() {
  for (auto& [name, node] : nodes_) {
    if (node->up()) node->Kill();
  }
}

void Cluster::RunFor(Duration duration) {
  RunUntil([] { return false; }, duration);
}

bool Cluster::RunUntil(const std::function<bool()>& done, Duration limit) {
  return world_.stage.RunUntil(done, now() + limit);
}

Node& Cluster::At(const std::string& name) {
  const auto at = nodes_.find(name);
  LOCUM_CHECK(at != nodes_.end());
  return *at->second;
}

void Cluster::AddNode(const std::string& name) {
  LOCUM_CHECK(!nodes_.count(name));
  auto& node = nodes_[name] = std::make_unique<Node>(&world_, ++last_machine_, name);
  node->Start();
}

void Cluster::CutPeers(const std::string& name) {
  const Machine machine = At(name).number();
  for (const auto& [other, node] : nodes_) {
    if (node->number() == machine) continue;
    world_.network.Set(machine, node->number(), false);
    world_.network.Set(node->number(), machine, false);
  }
}

void Cluster::CutCoordinator(const std::string& name) {
  world_.network.Set(At(name).number(), kCoordinatorHost, false);
  world_.network.Set(kCoordinatorHost, At(name).number(), false);
}

void Cluster::Cut(const std::string& name) {
  CutPeers(name);
  CutCoordinator(name);
}

void Cluster::CutOut(const std::string& name) {
  const Machine machine = At(name).number();
  for (const auto& [other, node] : nodes_) world_.network.Set(machine, node->number(), node->number() == machine);
  world_.network.Set(machine, kCoordinatorHost, false);
}

void Cluster::CutIn(const std::string& name) {
  const Machine machine = At(name).number();
  for (const auto& [other, node] : nodes_) world_.network.Set(node->number(), machine, node->number() == machine);
  world_.network.Set(kCoordinatorHost, machine, false);
}

void Cluster::Heal(const std::string& name) {
  const Machine machine = At(name).number();
  for (const auto& [other, node] : nodes_) {
    world_.network.Set(machine, node->number(), true);
    world_.network.Set(node->number(), machine, true);
  }
  world_.network.Set(machine, kCoordinatorHost, true);
  world_.network.Set(kCoordinatorHost, machine, true);
}

void Cluster::CutAllFromCoordinator() {
  for (const auto& [name, node] : nodes_) CutCoordinator(name);
}

bool Cluster::Whole(const std::string& name) const {
  const Machine machine = nodes_.at(name)->number();
  return world_.network.Reach(machine, kCoordinatorHost) &&
         std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& other) { return world_.network.Reach(machine, other.second->number()); });
}

bool Cluster::AtRank(Rank rank, const std::function<void(Worker&)>& what) {
  std::vector<std::shared_ptr<Worker>> holders;
  for (const auto& [id, worker] : world_.workers) {
    if (worker->rank() == rank) holders.push_back(worker);
  }
  for (const auto& worker : holders) what(*worker);
  return !holders.empty();
}

std::shared_ptr<Worker> Cluster::Holder(Rank rank) const {
  const auto& stored = control_.stored();
  if (stored && rank.value < stored->ranks.size()) return world_.Find(stored->ranks[rank.value].worker);
  for (const auto& [id, worker] : world_.workers) {
    if (worker->rank() == rank && worker->word().generation == watch_.newest()) return worker;
  }
  return nullptr;
}

std::vector<std::string> Cluster::NodeNames() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) names.push_back(name);
  return names;
}

uint32_t Cluster::Holders() const {
  std::set<Machine> machines;
  for (const auto& [id, worker] : world_.workers) {
    const bool holds = worker->rank() != kNoRank && worker->word().generation == watch_.newest() &&
                       worker->word().state != WordState::kTorn && !worker->asleep() && !worker->deaf() &&
                       !worker->spoiled();
    if (holds && worker->node()->up() && Whole(worker->node()->name())) machines.insert(worker->machine());
  }
  return static_cast<uint32_t>(machines.size());
}

std::string Cluster::Describe() const {
  std::string text;
  for (const auto& [name, node] : nodes_) text += "  " + node->Describe() + (Whole(name) ? "" : ", cut") + "\n";
  return text;
}

}  // namespace locum::sim
