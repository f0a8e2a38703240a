// The end: on record first, then told; a worker that ends after that is no fault.
#include <algorithm>

#include "core/impl.h"

namespace locum {

void Coordinator::Impl::Fail(int exit_status, const std::string& reason) {
  p_.phase = JobPhase::kFailed;
  p_.exit_status = exit_status;
  p_.reason = reason;
  TellEnd();
}

void Coordinator::Impl::TellEnd() {
  Note note = EndNote(p_);
  note.step = committed_;
  out_.emplace_back(std::move(note));
  LetNodesEnd();
}

void Coordinator::Impl::LetNodesEnd() { end_at_ = now_ + T().grace + std::chrono::seconds(2); }

Note EndNote(const PersistentState& ended) {
  Note note;
  note.name = ended.phase == JobPhase::kFinished ? "job_finished" : "job_failed";
  note.generation = ended.generation;
  note.reason = ended.reason;
  note.figures = {{"exit_status", ended.exit_status}};
  return note;
}

int ShellStatus(const WorkerExit& exit) { return exit.signal != 0 ? 128 + exit.signal : exit.status; }

namespace {

// Numbers of Linux on every architecture it is built for.
constexpr int kKilled = 9, kTerminated = 15;

// Not by its own doing.
bool TakenAway(const WorkerExit& exit) { return exit.signal == kKilled || exit.signal == kTerminated; }

}  // namespace

bool Coordinator::Impl::LostAtEnd(const Placement& placement) {
  const Node* node = NodeOf(placement);
  if (!node || node->connected) return false;
  const Time due = std::max(node->lost_at, finish_since_) + 3 * T().silence;
  if (now_ < due) Want(due);
  return now_ >= due;
}

// One rank has called Finish at a state from which another trains on: they were told, or decided, different ends.
void Coordinator::Impl::CheckStops() {
  if (p_.phase != JobPhase::kRunning) return;
  const Placement* stopped = nullptr;
  for (const Placement& p : p_.ranks) {
    const WorkerReport* report = ReportOf(p);
    if (report && report->state.done && report->state.word.generation == p_.generation) stopped = &p;
  }
  if (!stopped) return;
  const ::locum::Step last = ReportOf(*stopped)->state.word.step;
  for (const Placement& p : p_.ranks) {
    const WorkerReport* report = ReportOf(p);
    if (!report || report->state.done || report->state.word.generation != p_.generation) continue;
    if (report->state.starting < last || report->state.position != Position::kInCollective) continue;
    return Fail(1, "rank " + std::to_string(stopped->rank.value) + " has finished at state " +
                       std::to_string(last.value) + ", and rank " + std::to_string(p.rank.value) +
                       " goes on with step " + std::to_string(report->state.starting.value) +
                       ": every rank must decide the same end at the same step (locum_stop, total_steps)");
  }
}

void Coordinator::Impl::ProgressFinish() {
  if (p_.phase == JobPhase::kFinishing) {
    bool all = true;
    for (const Placement& p : p_.ranks) {
      const WorkerReport* report = ReportOf(p);
      if (exits_.count(p.rank)) continue;
      if (report && report->exit) {
        exits_[p.rank] = *report->exit;
      } else if (proven_dead_.count(p.worker) || LostAtEnd(p)) {
        exits_[p.rank] = WorkerExit{0, kKilled, false, "its node was lost at the end", ""};
      } else {
        all = false;
      }
    }
    const Time due = finish_since_ + T().finish;
    if (!all && now_ < due) return Want(due);
    for (const Placement& p : p_.ranks) {
      const auto exit = exits_.find(p.rank);
      // The work of a rank that is lost now is on record. Rank 0 may still owe its report.
      if (p.rank != Rank(0) && exit != exits_.end() && TakenAway(exit->second)) {
        AddNote("lost_after_finish").rank = p.rank;
        continue;
      }
      const int status = exit == exits_.end() ? 1 : ShellStatus(exit->second);
      if (status != 0 && p_.exit_status == 0) {
        p_.exit_status = status;
        p_.reason = "rank " + std::to_string(p.rank.value) + " " +
                    (exit == exits_.end() ? "has not ended in time after Finish" : "ended with " + exit->second.what);
      }
    }
    p_.phase = JobPhase::kFinished;
    TellEnd();
  }
  if (!Over()) return;
  // Nodes end by themselves once told; those that cannot be reached are not waited for beyond their grace. One that
  // has failed before is not waited for at all.
  const bool anyone = std::any_of(nodes_.begin(), nodes_.end(), [](const auto& n) {
    const bool lives = n.second.state != NodeState::kFailed && n.second.state != NodeState::kQuarantined;
    return n.second.connected || (n.second.seen && lives && !n.second.told_end);
  });
  if (anyone && now_ < end_at_) return Want(end_at_);
  ended_ = true;
  out_.emplace_back(EndJob{p_.exit_status, p_.reason});
}

}  // namespace locum
