// The laws: what must hold in every run, whatever fails. Watched from outside, on what really happens in the workers'
// memory and on the coordinator's disk, not on what anybody reports.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/world.h"

namespace locum::sim {

struct Violation {
  Time when;
  std::string law;   // its name
  std::string what;  // who broke it, and how
};

class Watch {
 public:
  explicit Watch(World* world) : world_(world) {}

  // The content of state `step` in an undisturbed run.
  const Content& Reference(Step step);
  static uint64_t Updated(uint64_t chunk, Step step) { return Mix64(chunk + step.value + 1); }

  // ---- the workers' memory ----
  void Updating(const Worker& worker, Generation generation);
  void Committed(const Worker& worker, Generation generation);
  void Verified(const Worker& worker);
  void Resumed(const Worker& worker, Generation generation);
  void Overwriting(const Worker& worker, const WorkerOrder& order);
  void Ended(const Worker& worker);

  // ---- the coordinator's disk and words ----
  void CoordinatorStarted(Term term, Incarnation cluster);
  void DatabaseLost();
  void Persisted(const PersistentState& state);
  void Sent(const NodeOrder& order);
  void Noted(const Note& note, Time when);  // when it was decided

  // ---- of the run ----
  void Spoiled() { spoiled_ = true; }
  // From here on nothing is broken; what has failed is mended.
  void Calm() { calm_since_ = world_->stage.now(); }
  void Break(const std::string& law, const std::string& what);
  // The newest state that every rank has made.
  uint64_t made() const { return made_; }
  // A live worker that answers its node, and its node the coordinator, holds state `step` or a later one.
  bool Reachable(Step step) const;
  // No worker that runs holds a state that counts.
  bool StateLost() const;
  bool database_lost() const { return database_lost_; }
  uint32_t activated() const { return activated_; }
  Generation newest() const { return newest_; }
  const std::vector<Violation>& violations() const { return violations_; }

 private:
  uint32_t Others(const Worker& worker, Step step) const;
  void CheckFix(const PersistentState& state);

  World* const world_;
  std::vector<Content> reference_;
  std::map<uint64_t, std::map<Rank, Generation>> committed_;  // of the newest states
  uint64_t made_ = 0;
  Generation newest_;  // that any worker has resumed in
  std::map<Generation, std::vector<Incarnation>> members_;
  Generation fixed_;  // the newest whose recovery step is on disk
  Step fixed_at_;
  Generation opened_;
  Term term_;
  bool database_lost_ = false, spoiled_ = false;
  // Commits of ranks whose node the coordinator hears: the newest, and since when they come without a pause.
  Time seen_at_{}, seen_since_{};
  bool recovering_ = false;  // as far as the notes have told
  struct Death {
    Time when;
    Step step;
    Machine machine;
  };
  std::vector<Death> deaths_;
  Time calm_since_ = kNever;
  uint32_t activated_ = 0;
  std::vector<Violation> violations_;
};

}  // namespace locum::sim
