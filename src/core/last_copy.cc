// The copies of the state that must outlive their worker's lateness. A worker that has frozen serves its state although
// its trainer sits in a collective or computes; its node ends it when it comes too late to its next step, if it was told that
// others hold the state. If all who hold it are late, one is kept until another holds it too.
#include <algorithm>

#include "core/impl.h"

namespace locum {

bool CameBack(const WorkerState& s, Generation generation) {
  return s.parked >= generation || (s.word.generation == generation && s.word.state != WordState::kFrozen);
}

void Coordinator::Impl::ChooseKept() {
  if (!unsettled_ || p_.history.empty() || adopting_ || Over()) {
    kept_ = Incarnation();
    others_expendable_ = p_.history.empty();  // there is nothing to lose yet
    return;
  }
  // Nearly always all are back long before this.
  if (const Time due = unsettled_since_ + std::min(T().collective, T().park) / 4; now_ < due) return Want(due);
  Incarnation shown_by, may_hold;
  bool kept_shown = false, kept_may_hold = false, safe = false;
  const auto look = [&](const Placement& p) {
    const WorkerReport* report = ReportOf(p);
    if (!report || report->life != WorkerLife::kReady || report->stuck || report->mute || Gone(p.worker)) return;
    const WorkerState& s = report->state;
    if (s.word.generation == Generation(0) || s.word.state == WordState::kTorn) return;
    const bool shown =
        (s.frozen == p_.generation && InLineage(s.holding, p_.history)) || s.verified.generation == p_.generation;
    const bool blamed = faulted_.count(p.worker) || distrusted_.count(p.worker);
    safe |= shown && CameBack(s, p_.generation) && !blamed && Heard(*NodeOf(p));
    kept_may_hold |= p.worker == kept_;
    kept_shown |= p.worker == kept_ && shown;
    if (may_hold == Incarnation()) may_hold = p.worker;
    if (shown_by == Incarnation() && shown) shown_by = p.worker;
  };
  for (const Placement& p : p_.ranks) look(p);
  for (const Placement& p : p_.leaving) look(p);
  const Incarnation before = kept_;
  if (safe) {
    kept_ = Incarnation();
  } else if (shown_by != Incarnation()) {
    kept_ = kept_shown ? kept_ : shown_by;
  } else if (!kept_may_hold && may_hold != Incarnation()) {
    kept_ = may_hold;
  }
  if (kept_ != before) kept_since_ = now_;
  // What nobody has shown in this generation may be a process that does not run.
  others_expendable_ = safe || shown_by != Incarnation();
}

// Every rank that could have taken a copy from it has one, or is late as well: it cannot make room by itself.
void Coordinator::Impl::DetectKept() {
  if (p_.phase != JobPhase::kRecovering || kept_ == Incarnation()) return;
  const bool fetching = std::any_of(plan_.ranks.begin(), plan_.ranks.end(), [&](const RankPlan& member) {
    const WorkerReport* report = ReportOf(*PlacementOf(member.rank));
    return member.pull && (!report || report->state.verified.generation != p_.generation);
  });
  if (fetching) return;
  for (const Placement& p : p_.ranks) {
    if (p.worker != kept_) continue;
    const WorkerReport* report = ReportOf(p);
    if (report && CameBack(report->state, p_.generation)) return;
    const bool inside = report && report->state.position == Position::kInCollective;
    const Time due = kept_since_ + (inside ? T().collective : T().park) + T().heartbeat;
    if (now_ < due) return Want(due);
    Fault fault{p.node, p.rank, p.worker,
                inside ? "it has not come out of its collective" : "it has not come to its next step"};
    fault.reason += ", and holds the last copy of the state";
    fault.answers = fault.in_place = true;
    return Open({fault}, fault.reason);
  }
}

}  // namespace locum
