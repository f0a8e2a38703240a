// Where a new generation goes on from, and who must fetch the state: pure functions of what the frozen workers
// hold (design: opening a generation, step 3).
#pragma once

#include <string>
#include <vector>

#include "base/cluster.h"
#include "base/status.h"

namespace locum {

// A step that a generation recovered to. A holding of an older generation beyond it left the lineage.
struct Recovered {
  Generation generation;
  Step step;
  friend bool operator==(const Recovered&, const Recovered&) = default;
};

struct HeldCopy {
  Incarnation worker;
  Rank rank = kNoRank;  // the one it had; kNoRank for a spare
  std::string domain;   // failure domain; copies in one domain are lost together
  std::string address;
  Holding holding;
  bool done = false;  // has called Finish: it cannot be taken back
};

struct RankPlan {
  Rank rank;
  Incarnation worker;
  bool pull = false;
  bool staged = false;
};

struct RecoveryPlan {
  Step step;
  std::vector<Peer> sources;  // complete copies of `step`
  std::vector<RankPlan> ranks;
};

// False for a copy that a later generation recovered behind, or that no generation ever made while one has run.
bool InLineage(const Holding& holding, const std::vector<Recovered>& history);

// `members` are the workers of the new generation by rank; each appears in `copies` if it has reported. Errors:
// kUnavailable when no copy is left; kInvalid when live copies are more than one step apart, which breaks the
// contract with the trainer.
Result<RecoveryPlan> PlanRecovery(const std::vector<HeldCopy>& copies, const std::vector<RankPlan>& members,
                                  const std::vector<Recovered>& history);

// The verdict on the state hashes of one generation, by rank.
struct HashReport {
  Rank rank;
  Incarnation worker;
  uint64_t hash = 0;
  bool pulled = false;  // a copy of another's state proves nothing about it
};
struct HashVerdict {
  bool agree = true;
  bool undecided = false;               // differing, and no majority
  std::vector<Incarnation> distrusted;  // whose state is not the majority's
  std::string reason;
};
// With `first`, nothing has been trained yet and the lowest rank's initial state is the job's.
HashVerdict JudgeHashes(const std::vector<HashReport>& reports, bool first);

}  // namespace locum
