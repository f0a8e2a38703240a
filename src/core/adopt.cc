// The nodes of a coordinator whose database is lost train on and refuse a stranger's orders. When an operator says so,
// this coordinator takes them over: what was on disk is built anew from what they report, and a generation above
// everything that any of them has seen is opened with the same members.
#include <algorithm>

#include "core/impl.h"

namespace locum {

Status Coordinator::Impl::CheckAdopt() const {
  if (stopped_ || ended_) return Unavailable("the coordinator is stopping");
  if (p_.phase != JobPhase::kGathering) {
    return Invalid("this coordinator leads job " + p_.spec.job + " already; adopt from one that has no job yet");
  }
  const Node* first = nullptr;
  for (const auto& [name, node] : nodes_) {
    if (!node.stranger || !node.connected) continue;
    if (!first) first = &node;
    if (node.hello.term.value > kMaxTerm / 2) {
      return Invalid(name + " has obeyed term " + std::to_string(node.hello.term.value) +
                     ", which leaves no higher one to lead by; end its agent first");
    }
    if (node.hello.cluster == first->hello.cluster && node.hello.job == first->hello.job) continue;
    return Invalid("nodes of two clusters are connected: " + first->name + " trains for job " + first->hello.job +
                   ", " + name + " for job " + node.hello.job + "; end the agents of one of them first");
  }
  if (!first) return Invalid("no node is connected that trains for another coordinator");
  return OkStatus();
}

void Coordinator::Impl::On(const AdoptRequested& e) {
  // Asked again while those taken over turn out to hold nothing, it is meant for others who have come since.
  const bool others =
      std::any_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.second.stranger && n.second.connected; });
  const bool goes_on = Adopting() && (adopted_ranks_ != 0 || !others);
  const Status status = goes_on ? OkStatus() : CheckAdopt();
  out_.emplace_back(Answer{e.request, status});
  if (!status.ok() || goes_on) return;
  for (const auto& [name, node] : nodes_) {
    if (!node.stranger || !node.connected) continue;
    p_.adopts = node.hello.cluster;
    p_.spec.job = node.hello.job;
    p_.term = std::max(p_.term, node.hello.term.Next());
  }
  adopt_since_ = now_;
  AddNote("adoption_started").reason = "asked for by an operator";
  for (auto& [name, node] : nodes_) {
    if (node.stranger && node.connected) WelcomeStranger(node);
  }
}

void Coordinator::Impl::WelcomeStranger(Node& node) {
  node.stranger = false;
  out_.emplace_back(SendWelcome{node.stream, WelcomeFor(node)});
}

// Waits until the nodes have told what they run.
void Coordinator::Impl::ProgressAdopt() {
  if (!Adopting() || p_.phase != JobPhase::kGathering) return;
  std::map<Rank, Placement> found;
  std::map<Rank, Generation> in;
  Generation running, newest;
  for (const auto& [name, node] : nodes_) {
    if (!node.connected || !node.reported || node.stranger) continue;
    for (const auto& [slot, info] : node.slots) {
      if (!info.report) continue;
      const WorkerState& s = info.report->state;
      newest = std::max({newest, s.word.generation, s.frozen, s.verified.generation});
      if (!info.Ready() || s.rank == kNoRank) continue;
      running = std::max(running, s.word.generation);
      if (s.word.generation == Generation(0) || s.word.generation < in[s.rank]) continue;
      in[s.rank] = s.word.generation;
      found[s.rank] = {s.rank, name, name, slot, info.worker};
    }
  }
  if (!found.empty() && found.rbegin()->first.value >= World()) {
    waiting_for_ = "a coordinator with the job's own shape: a node holds rank " +
                   std::to_string(found.rbegin()->first.value) + ", and this one was started for " +
                   std::to_string(World()) + " ranks (--nodes, --nproc-per-node)";
    return;
  }
  adopted_ranks_ = found.size();
  if (newest.value + kMaxOpened >= kMaxGeneration) {
    waiting_for_ = "nodes whose generation has a successor: one of them reports " + std::to_string(newest.value);
    return;
  }
  const Time due = adopt_since_ + T().adopt;
  if (found.size() < World() && (now_ < due || found.empty())) {
    waiting_for_ = "the nodes that are taken over: " + std::to_string(found.size()) + " of " + std::to_string(World()) +
                   " ranks have reported";
    if (now_ >= due) waiting_for_ += "; if none is left, end their agents and start the job in a new directory";
    return Want(std::max(due, now_ + T().heartbeat));
  }
  TakeOver(found, running, newest);
}

// A rank whose worker has not reported belongs where the others of its node's ranks are, if its slot there is free:
// that node starts a worker anew, and spares are left to ranks without a node.
Placement Coordinator::Impl::WithItsPeers(Rank rank, const std::map<Rank, Placement>& found) const {
  const uint32_t per_node = p_.spec.workers_per_node;
  const Slot slot(rank.value % per_node);
  Placement placement{rank, "", "", slot, Incarnation()};
  for (const auto& [other, at] : found) {
    if (other.value / per_node == rank.value / per_node) placement.node = placement.home = at.node;
  }
  const bool taken = std::any_of(found.begin(), found.end(), [&](const auto& f) {
    return f.second.node == placement.node && f.second.slot == slot;
  });
  if (taken) placement.node = placement.home = "";
  return placement;
}

void Coordinator::Impl::TakeOver(const std::map<Rank, Placement>& found, Generation running, Generation newest) {
  p_.ranks.clear();
  for (uint32_t r = 0; r < World(); ++r) {
    const auto at = found.find(Rank(r));
    p_.ranks.push_back(at != found.end() ? at->second : WithItsPeers(Rank(r), found));
  }
  for (auto& [name, node] : nodes_) {
    if (!node.connected) continue;
    SetState(node, NodeState::kHealthy, "");
    node.role = HoldsRank(name) ? Role::kActive : Role::kSpare;
  }
  // Of what ran before only the newest is known; a copy of an older generation cannot be judged and does not count.
  p_.history = {{running, ::locum::Step(0)}};
  // Their nodes may have been told of generations that no worker has answered for; a worker takes no lower one.
  p_.generation = Generation(newest.value + kMaxOpened);
  p_.phase = JobPhase::kRunning;  // who was not there then may still come and is one of ours
  resumed_ = true;
  last_progress_ = now_;
  Note& note = AddNote("job_taken_over");
  note.reason = "from what its nodes report";
  note.figures = {{"ranks", static_cast<int64_t>(found.size())}};
  Open({}, "taken over from a coordinator whose database is lost");
}

}  // namespace locum
