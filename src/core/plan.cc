#include "core/plan.h"

#include <algorithm>
#include <map>
#include <set>

namespace locum {

bool InLineage(const Holding& holding, const std::vector<Recovered>& history) {
  if (!holding.valid) return false;
  if (history.empty()) return holding.step == Step(0);
  // Generation 0 is a program's own initial state; once a generation has run it is nobody's.
  if (holding.generation == Generation(0)) return false;
  for (const Recovered& r : history) {
    if (r.generation > holding.generation && r.step < holding.step) return false;
  }
  return true;
}

namespace {

struct Candidate {
  std::set<std::string> domains;
  std::vector<const HeldCopy*> copies;
};

struct Range {
  Step lowest{0}, highest{kMaxStep};
  bool Contains(Step s) const { return lowest <= s && s <= highest; }
};

// The states held by members of the newest generation that ran. A copy from an older one counts beside them only
// if it is just as new: it may be right and still be far behind.
Range StepsOfNewest(const std::vector<HeldCopy>& copies, const std::vector<Recovered>& history) {
  Range range{Step(kMaxStep), Step(0)};
  for (const HeldCopy& copy : copies) {
    if (!InLineage(copy.holding, history)) continue;
    if (!history.empty() && copy.holding.generation < history.back().generation) continue;
    range.lowest = std::min(range.lowest, copy.holding.step);
    range.highest = std::max(range.highest, copy.holding.step);
  }
  return range.highest < range.lowest ? Range{} : range;
}

Step Choose(const std::map<Step, Candidate>& candidates, bool anyone_done) {
  // Whoever has called Finish holds the last state and cannot go back; so that is where all meet.
  if (anyone_done) return candidates.rbegin()->first;
  const auto best = std::max_element(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.domains.size(), a.first) < std::pair(b.second.domains.size(), b.first);
  });
  return best->first;
}

}  // namespace

Result<RecoveryPlan> PlanRecovery(const std::vector<HeldCopy>& copies, const std::vector<RankPlan>& members,
                                  const std::vector<Recovered>& history) {
  std::map<Step, Candidate> candidates;
  std::map<Incarnation, const HeldCopy*> good;
  bool anyone_done = false;
  const Range live = StepsOfNewest(copies, history);
  for (const HeldCopy& copy : copies) {
    if (!InLineage(copy.holding, history) || !live.Contains(copy.holding.step)) continue;
    Candidate& c = candidates[copy.holding.step];
    c.domains.insert(copy.domain);
    c.copies.push_back(&copy);
    good[copy.worker] = &copy;
    anyone_done |= copy.done;
  }
  if (candidates.empty()) return Unavailable("no live worker holds a complete copy of the state");
  const Step lowest = candidates.begin()->first, highest = candidates.rbegin()->first;
  if (highest.value - lowest.value > 1) {
    return Invalid("live ranks hold states " + std::to_string(lowest.value) + " and " + std::to_string(highest.value) +
                   ", more than one step apart: between two commits each rank must "
                   "complete a collective that depends on every rank");
  }

  RecoveryPlan plan;
  plan.step = Choose(candidates, anyone_done);
  const Candidate& chosen = candidates[plan.step];
  for (const HeldCopy* copy : chosen.copies) plan.sources.push_back({copy->rank, copy->worker, copy->address});
  std::sort(plan.sources.begin(), plan.sources.end(),
            [](const Peer& a, const Peer& b) { return std::pair(a.rank, a.worker) < std::pair(b.rank, b.worker); });
  for (RankPlan member : members) {
    const auto held = good.find(member.worker);
    member.pull = held == good.end() || held->second->holding.step != plan.step;
    // Copies in one domain are lost together: where only one holds the step, the one overwritten may be all that is left.
    member.staged = member.pull && held != good.end() && chosen.domains.size() < 2;
    plan.ranks.push_back(member);
  }
  return plan;
}

HashVerdict JudgeHashes(const std::vector<HashReport>& reports, bool first) {
  HashVerdict verdict;
  std::map<uint64_t, std::vector<const HashReport*>> by_hash;
  const HashReport* lowest = nullptr;
  for (const HashReport& r : reports) {
    by_hash[r.hash];
    if (r.pulled) continue;
    by_hash[r.hash].push_back(&r);
    if (!lowest || r.rank < lowest->rank) lowest = &r;
  }
  if (by_hash.size() <= 1 || !lowest) {
    verdict.agree = by_hash.size() <= 1;
    verdict.undecided = !verdict.agree;
    return verdict;
  }
  verdict.agree = false;
  uint64_t reference = lowest->hash;
  if (!first) {
    size_t most = 0, with_most = 0;
    for (const auto& [hash, holders] : by_hash) {
      if (holders.size() > most) {
        most = holders.size();
        with_most = 1;
        reference = hash;
      } else if (holders.size() == most) {
        ++with_most;
      }
    }
    verdict.undecided = with_most != 1;
  }
  verdict.reason = "state hashes differ:";
  for (const HashReport& r : reports) {
    verdict.reason += " rank " + std::to_string(r.rank.value) + " " + ToHex(r.hash) + (r.pulled ? " (pulled)" : "");
    if (r.hash != reference) verdict.distrusted.push_back(r.worker);
  }
  return verdict;
}

}  // namespace locum
