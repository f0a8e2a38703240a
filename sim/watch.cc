#include "sim/watch.h"

#include <algorithm>
#include <set>

#include "sim/control.h"
#include "sim/node.h"
#include "sim/worker.h"

namespace locum::sim {
namespace {

constexpr size_t kMaxViolations = 20;
constexpr Duration kRecent = std::chrono::seconds(2);  // reported shortly before it died

std::string Number(uint64_t n) { return std::to_string(n); }
std::string Name(const Worker& worker) {
  return "rank " + (worker.rank() == kNoRank ? "-" : Number(worker.rank().value)) + " on " + worker.node()->name();
}

}  // namespace

const Content& Watch::Reference(Step step) {
  if (reference_.empty()) {
    Content first;
    for (size_t i = 0; i < kChunks; ++i) first[i] = Mix64(world_->spec.seed * kChunks + i + 1);
    reference_.push_back(first);
  }
  while (reference_.size() <= step.value) {
    Content next = reference_.back();
    for (uint64_t& chunk : next) chunk = Updated(chunk, Step(reference_.size() - 1));
    reference_.push_back(next);
  }
  return reference_[step.value];
}

void Watch::Break(const std::string& law, const std::string& what) {
  if (violations_.size() < kMaxViolations) violations_.push_back({world_->stage.now(), law, what});
}

// ---- The workers' memory -------------------------------------------------------------------------------------

void Watch::Updating(const Worker& worker, Generation generation) {
  if (worker.frozen() > generation) {
    Break("a frozen state does not change", Name(worker) + " updates in generation " + Number(generation.value) +
                                                " and has frozen for " + Number(worker.frozen().value));
  }
}

void Watch::Committed(const Worker& worker, Generation generation) {
  const Step made = worker.word().step;
  const bool seen = worker.node()->Hears() && world_->network.Reach(worker.machine(), kCoordinatorHost);
  if (seen && world_->stage.now() > seen_at_ + world_->spec.timeouts.silence / 2) seen_since_ = world_->stage.now();
  if (seen) seen_at_ = world_->stage.now();
  if (!worker.spoiled() && worker.content() != Reference(made)) {
    Break("every state is that of an undisturbed run", Name(worker) + " committed another state " + Number(made.value));
  }
  if (fixed_ > generation && made.value > fixed_at_.value + 1) {
    Break("one gang commits past a recovery", Name(worker) + " committed state " + Number(made.value) +
                                                  " in generation " + Number(generation.value) + ", and " +
                                                  Number(fixed_.value) + " goes on from " + Number(fixed_at_.value));
  }
  auto& ranks = committed_[made.value];
  ranks[worker.rank()] = generation;
  const uint32_t world = world_->spec.nodes * world_->spec.workers_per_node;
  if (ranks.size() == world && made.value > made_) {
    made_ = made.value;
    committed_.erase(committed_.begin(), committed_.lower_bound(made_ > 3 ? made_ - 3 : 0));
  }
}

void Watch::Verified(const Worker& worker) {
  if (!spoiled_ && worker.content() != Reference(worker.word().step)) {
    Break("what is verified is the state",
          Name(worker) + " verified what is not state " + Number(worker.word().step.value));
  }
}

void Watch::Resumed(const Worker& worker, Generation generation) {
  newest_ = std::max(newest_, generation);
  if (worker.content() != Reference(worker.word().step)) {
    Break("nobody resumes on another state", Name(worker) + " resumes generation " + Number(generation.value) +
                                                 " on what is not state " + Number(worker.word().step.value));
  }
  std::vector<Incarnation> members;
  for (const Peer& peer : worker.peers()) {
    members.push_back(peer.worker);
    const auto other = world_->Find(peer.worker);
    if (other && other->verified() < generation) {
      Break("nobody resumes before all have verified",
            Name(worker) + " resumes generation " + Number(generation.value) + " before " + Name(*other));
    }
  }
  auto& known = members_[generation];
  if (known.empty()) known = members;
  if (known != members) {
    Break("a generation has one membership", "generation " + Number(generation.value) + " runs with two of them");
  }
}

// Nodes on which others hold `step` complete; who has just died may have been counted on.
uint32_t Watch::Others(const Worker& worker, Step step) const {
  std::set<Machine> machines;
  for (const auto& [id, other] : world_->workers) {
    if (id != worker.id && other->Complete() && other->word().step == step &&
        other->word().generation != Generation(0)) {
      machines.insert(other->machine());
    }
  }
  for (const Death& death : deaths_) {
    if (death.step == step && death.when + kRecent > world_->stage.now()) machines.insert(death.machine);
  }
  return static_cast<uint32_t>(machines.size());
}

void Watch::Overwriting(const Worker& worker, const WorkerOrder& order) {
  const bool counts = worker.word().state == WordState::kFrozen && worker.word().generation != Generation(0) &&
                      worker.word().step.value + 1 >= made_ && !spoiled_ &&
                      !database_lost_;  // then copies of older generations cannot be judged, and do not count
  if (!order.staged && counts && Others(worker, order.recovery_step) < 2) {
    Break("recovery does not make the state more fragile",
          Name(worker) + " overwrites its state " + Number(worker.word().step.value) +
              " while others on fewer than two nodes hold " + Number(order.recovery_step.value));
  }
}

void Watch::Ended(const Worker& worker) {
  if (worker.Complete() && worker.word().generation != Generation(0)) {
    deaths_.push_back({world_->stage.now(), worker.word().step, worker.machine()});
  }
  if (deaths_.size() > 64) deaths_.erase(deaths_.begin(), deaths_.begin() + 32);
}

bool Watch::Reachable(Step step) const {
  return std::any_of(world_->workers.begin(), world_->workers.end(), [&](const auto& entry) {
    const Worker& w = *entry.second;
    const bool holds = w.Complete() && w.word().generation != Generation(0) && w.word().step >= step && !w.spoiled();
    const bool answers = !w.asleep() && w.node()->up() && w.node()->Hears();
    const bool serves = std::any_of(world_->workers.begin(), world_->workers.end(), [&](const auto& other) {
      return other.second->machine() != w.machine() && world_->network.Reach(w.machine(), other.second->machine());
    });
    return holds && answers && serves;
  });
}

bool Watch::StateLost() const {
  if (newest_ == Generation(0)) return false;
  return std::none_of(world_->workers.begin(), world_->workers.end(), [&](const auto& entry) {
    const Worker& w = *entry.second;
    return w.word().generation == newest_ && w.word().state != WordState::kTorn && !w.stuck();
  });
}

// ---- The coordinator's disk and words ------------------------------------------------------------------------

void Watch::CoordinatorStarted(Term term, Incarnation) {
  if (!database_lost_ && term <= term_) {
    Break("terms grow", "a coordinator starts with term " + Number(term.value) + " after " + Number(term_.value));
  }
  term_ = term;
}

void Watch::DatabaseLost() {
  database_lost_ = true;
  fixed_ = Generation(0);  // of another cluster, whose numbers say nothing
  members_.clear();
}

void Watch::Persisted(const PersistentState& state) {
  if (const Status sense = CheckStored(state); !sense.ok()) Break("what is recorded makes sense", sense.message());
  if (!database_lost_ && state.generation < opened_) {
    Break("generations grow",
          "generation " + Number(state.generation.value) + " is recorded after " + Number(opened_.value));
  }
  opened_ = std::max(opened_, state.generation);
  term_ = std::max(term_, state.term);
  if (state.recovery_fixed && state.generation > fixed_) {
    fixed_ = state.generation;
    fixed_at_ = state.recovery_step;
    CheckFix(state);
  }
  if (state.phase == JobPhase::kFailed && state.exit_status == kExitStateLost && Reachable(Step(made_))) {
    Break("a state that can be reached is not given up",
          "the job ends with its state lost, and state " + Number(made_) + " can be reached");
  }
}

void Watch::CheckFix(const PersistentState& state) {
  if (state.recovery_step.value < made_ && Reachable(Step(made_))) {
    Break("a committed step is not lost", "generation " + Number(state.generation.value) + " goes on from state " +
                                              Number(state.recovery_step.value) + ", every rank has made " +
                                              Number(made_));
  }
  for (const Placement& p : state.ranks) {
    const auto worker = world_->Find(p.worker);
    if (!worker || worker->word().generation == Generation(0)) continue;
    const WordState word = worker->word().state;
    if (word != WordState::kFrozen && word != WordState::kTorn) {
      Break("a recovery step is fixed on frozen states", "generation " + Number(state.generation.value) +
                                                             " fixes state " + Number(state.recovery_step.value) +
                                                             " and " + Name(*worker) + " is " + WordStateName(word));
    }
  }
}

void Watch::Sent(const NodeOrder& order) {
  if (order.term < term_ && !database_lost_) {
    Break("terms grow", "an order of term " + Number(order.term.value) + " is sent after " + Number(term_.value));
  }
  for (const WorkerOrder& one : order.workers) {
    if (one.generation > opened_ && one.mode != Mode::kIdle) {
      Break("what is sent is on record", "an order of generation " + Number(one.generation.value) +
                                             " is sent, on record is " + Number(opened_.value));
    }
    const bool recovers = one.mode == Mode::kRecover || one.mode == Mode::kRun;
    if (recovers && one.generation > fixed_) {
      Break("what is sent is on record",
            "generation " + Number(one.generation.value) + " is told a recovery step that is not on record");
    }
  }
}

void Watch::Noted(const Note& note, Time when) {
  const Duration silence = world_->spec.timeouts.silence;
  const bool trained = seen_at_ <= when && when - seen_at_ < silence / 2 && when - seen_since_ >= silence;
  if (note.name == "fault_detected" && note.reason.find("is silent") != std::string::npos && trained && !recovering_) {
    Break("who trains is not replaced", note.node + ": " + note.reason + ", and the others have just committed");
  }
  recovering_ = note.name == "fault_detected" || note.name == "regroup" || (recovering_ && note.name != "step_resumed");
  activated_ += note.name == "spare_activated";
  const bool settled = calm_since_ != kNever && world_->stage.now() > calm_since_ + std::chrono::seconds(60);
  if (note.name == "fault_detected" && settled) {
    Break("no healthy node fails in a calm network", note.node + ": " + note.reason);
  }
}

}  // namespace locum::sim
