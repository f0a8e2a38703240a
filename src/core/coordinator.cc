#include "core/coordinator.h"

#include <algorithm>

#include "core/impl.h"

namespace locum {

Coordinator::Coordinator(JobSpec spec, Term term, Incarnation cluster, std::optional<PersistentState> stored)
    : impl_(std::make_unique<Impl>(std::move(spec), term, cluster, std::move(stored))) {}
Coordinator::~Coordinator() = default;
std::vector<Action> Coordinator::Step(const Event& event, Time now) { return impl_->Step(event, now); }
ClusterView Coordinator::View() const { return impl_->View(); }

Coordinator::Impl::Impl(JobSpec spec, Term term, Incarnation cluster, std::optional<PersistentState> stored) {
  if (stored) {
    p_ = std::move(*stored);
    LOCUM_CHECK(term > p_.term);
    adopting_ = p_.phase != JobPhase::kGathering;
    // A planned stop is an order of the earlier coordinator; this one just does not repeat it.
    if (p_.phase == JobPhase::kStopping) p_.phase = JobPhase::kRunning;
    for (const PersistentNode& stored_node : p_.nodes) {
      Node& node = nodes_[stored_node.name];
      node.name = stored_node.name;
      node.state = stored_node.state;
      node.role = stored_node.role;
      node.reason = stored_node.reason;
      node.hello.keeper = stored_node.keeper;
    }
    if (p_.recovery_fixed) committed_ = p_.recovery_step;
    resumed_ = p_.leaving.empty();
    if (!Over()) p_.reason.clear();
  } else {
    LOCUM_CHECK(spec.nodes >= 1 && spec.workers_per_node >= 1);
    p_.spec = std::move(spec);
  }
  p_.term = term;
  p_.cluster = cluster;
}

std::vector<Action> Coordinator::Impl::Step(const Event& event, Time now) {
  LOCUM_CHECK(now >= now_);
  now_ = now;
  out_.clear();
  wake_ = kNever;
  if (!started_) {
    started_ = true;
    began_ = phase_since_ = last_progress_ = finish_since_ = waiting_since_ = adopt_since_ = now;
    for (auto& [name, node] : nodes_) node.last_heard = now;
    // Deadlines ran on while there was no coordinator.
    unsettled_ = adopting_;
    unsettled_since_ = now - T().collective;
    AddNote("coordinator_started").reason = adopting_ ? "took up an unfinished job" : "new job";
  }
  std::visit([this](const auto& e) { On(e); }, event);
  waiting_for_.clear();  // whatever still has to be waited for says so again
  capped_.clear();
  if (!stopped_ && !ended_ && store_waits_) {
    waiting_for_ = "the coordinator's store, which cannot be written; until it can, no node is replaced";
  } else if (!stopped_ && !ended_) {
    ProgressAdopt();
    Gather();
    Detect();
    ChooseKept();
    TryPlaceMissing();
    ProgressFreeze();
    ProgressRecovery();
    ProgressRunning();
    CheckStops();
    ProgressStop();
    ProgressFinish();
    if (Over()) {
      waiting_for_.clear();
    } else {
      RestartSlots();
      Handshakes();
    }
  }
  if (waiting_for_ != waiting_noted_) {
    if (!waiting_for_.empty()) AddNote("waiting").reason = waiting_for_;
    waiting_noted_ = waiting_for_;
  }
  UpdateAlarms();
  if (!stopped_) SendOrders();

  p_.nodes.clear();
  for (const auto& [name, node] : nodes_) {
    p_.nodes.push_back({name, node.state, node.role, node.hello.keeper, node.reason});
  }
  std::vector<Action> actions;
  if (!ever_saved_ || !(p_ == saved_)) {
    actions.emplace_back(Persist{std::make_shared<const PersistentState>(p_)});
    saved_ = p_;
    ever_saved_ = true;
  }
  for (Action& action : out_) actions.push_back(std::move(action));
  if (wake_ != kNever) actions.emplace_back(WakeAt{wake_});
  return actions;
}

void Coordinator::Impl::Want(Time when) { wake_ = std::min(wake_, std::max(when, now_)); }

Note& Coordinator::Impl::AddNote(const std::string& name) {
  Note note;
  note.name = name;
  note.generation = p_.generation;
  note.step = committed_;
  out_.emplace_back(std::move(note));
  return std::get<Note>(out_.back());
}

Note& Coordinator::Impl::AddNote(const std::string& name, const Node& node) {
  Note& note = AddNote(name);
  note.node = node.name;
  note.keeper = node.hello.keeper;
  note.agent = node.hello.agent;
  return note;
}

Placement* Coordinator::Impl::PlacementOf(Rank rank) {
  for (Placement& p : p_.ranks) {
    if (p.rank == rank) return &p;
  }
  return nullptr;
}

const Placement* Coordinator::Impl::PlacementOf(const std::string& node, Slot slot, Incarnation worker) const {
  for (const Placement& p : p_.ranks) {
    if (p.node == node && p.slot == slot && p.worker == worker) return &p;
  }
  return nullptr;
}

const Placement* Coordinator::Impl::LeavingOf(Incarnation worker) const {
  for (const Placement& p : p_.leaving) {
    if (p.worker == worker) return &p;
  }
  return nullptr;
}

bool Coordinator::Impl::HoldsRank(const std::string& node) const {
  return std::any_of(p_.ranks.begin(), p_.ranks.end(), [&](const Placement& p) { return p.node == node; });
}

const Node* Coordinator::Impl::NodeOf(const Placement& placement) const {
  const auto found = nodes_.find(placement.node);
  return found == nodes_.end() ? nullptr : &found->second;
}

Node* Coordinator::Impl::NodeOf(const Placement& placement) {
  const auto found = nodes_.find(placement.node);
  return found == nodes_.end() ? nullptr : &found->second;
}

const WorkerReport* Coordinator::Impl::ReportOf(const Placement& placement) const {
  const Node* node = NodeOf(placement);
  if (!node) return nullptr;
  const auto slot = node->slots.find(placement.slot);
  if (slot == node->slots.end() || slot->second.worker != placement.worker || !slot->second.report) return nullptr;
  return &*slot->second.report;
}

const JoinInfo* Coordinator::Impl::InfoOf(const Placement& placement) const {
  const Node* node = NodeOf(placement);
  if (!node) return nullptr;
  const auto slot = node->slots.find(placement.slot);
  if (slot == node->slots.end() || slot->second.worker != placement.worker || !slot->second.info) return nullptr;
  return &*slot->second.info;
}

bool NaturalLess(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t ie = i, je = j;
      while (ie < a.size() && digit(a[ie])) ++ie;
      while (je < b.size() && digit(b[je])) ++je;
      std::string na = a.substr(i, ie - i), nb = b.substr(j, je - j);
      na.erase(0, std::min(na.find_first_not_of('0'), na.size()));
      nb.erase(0, std::min(nb.find_first_not_of('0'), nb.size()));
      if (na.size() != nb.size()) return na.size() < nb.size();
      if (na != nb) return na < nb;
      i = ie;
      j = je;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

}  // namespace locum
