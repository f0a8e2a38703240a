// Whose fault it is beyond the worker that ended: the program's own, told from a node's by its following the rank to
// another node; and how much is repaired by itself before an operator is asked.
#include <algorithm>

#include "core/impl.h"

namespace locum {

namespace {

// Numbers of Linux on every architecture it is built for: what a process brings on itself.
constexpr int kIllegal = 4, kAborted = 6, kBusError = 7, kFloat = 8, kSegment = 11, kCpuLimit = 24, kFileLimit = 25,
              kBadCall = 31;

bool SelfInflictedSignal(int signal) {
  const int own[] = {kIllegal, kAborted, kBusError, kFloat, kSegment, kCpuLimit, kFileLimit, kBadCall};
  return std::find(std::begin(own), std::end(own), signal) != std::end(own);
}

// By its own doing, and not because a peer's end reached it through the collective.
bool OwnDoing(const WorkerReport& report, Generation running) {
  if (!report.exit || report.exit->stopped || report.state.word.generation != running) return false;
  if (report.exit->signal != 0) return SelfInflictedSignal(report.exit->signal);
  return report.state.broken != running && report.state.position != Position::kInCollective;
}

void Forget(std::vector<Time>* times, Time before) {
  std::erase_if(*times, [&](Time t) { return t <= before; });
}

}  // namespace

// A program's fault follows its rank: the first to end by its own doing in two generations that ran one after the
// other, on two nodes. One node alone may be the cause itself.
bool Coordinator::Impl::ProgramFault(const std::vector<Fault>& faults) {
  failed_here_twice_ = false;
  if (faults.size() != 1 || p_.phase != JobPhase::kRunning || p_.history.empty()) return false;
  const Fault& fault = faults.front();
  const WorkerReport* report = ReportOf(*PlacementOf(fault.rank));
  const bool torn = report && report->state.word.state == WordState::kTorn;
  if (!report || (!torn && !OwnDoing(*report, p_.generation))) return false;
  const std::string what = report->exit ? report->exit->what : fault.reason;
  const OwnFault before = own_fault_;
  own_fault_ = {fault.rank, p_.generation, fault.node, what};
  const size_t ran = p_.history.size();
  const bool consecutive = ran >= 2 && before.rank == fault.rank && before.generation == p_.history[ran - 2].generation;
  // On the same node again: another node can tell whose fault it is.
  failed_here_twice_ = consecutive && before.node == fault.node;
  if (!consecutive || before.node == fault.node) return false;
  std::string text = "the program's own fault: rank " + std::to_string(fault.rank.value) +
                     " was the first to fail in generation " + std::to_string(before.generation.value) + " on " +
                     before.node + " (" + before.what + ") and in generation " + std::to_string(p_.generation.value) +
                     " on " + fault.node + " (" + what + "), so it is not the node";
  if (report->exit && !report->exit->log_tail.empty()) text += "; the end of its log: " + report->exit->log_tail;
  if (!report->log.empty()) text += "; its log is " + report->log;
  Note& note = AddNote("fault_detected", nodes_[fault.node]);
  note.rank = fault.rank;
  note.worker = fault.worker;
  note.reason = fault.reason;
  Fail(kExitProgramFault, text);
  return true;
}

bool Coordinator::Impl::MayRestartHere(const Fault& fault) {
  Node& node = nodes_[fault.node];
  // A planned move that fails goes back to the old holder, who still has everything.
  if (returning_ && fault.node == returning_node_) return false;
  Forget(&node.restarts, now_ - p_.spec.limits.window);
  if (!fault.in_place || !Heard(node) || node.leaving || node.restarts.size() >= p_.spec.limits.restarts) return false;
  return !((failed_here_twice_ || p_.spec.worker_to_spare) && SpareReady());
}

// True: this recovery waits, since there were too many of late.
bool Coordinator::Impl::Capped(const std::vector<Fault>& faults, const std::string& reason) {
  // While one waits there is no use in connecting those that are left either.
  if (!capped_.empty()) return true;
  if (faults.empty()) return false;
  const Limits& limits = p_.spec.limits;
  Forget(&recoveries_, now_ - limits.window);
  if (recoveries_.size() < limits.recoveries) {
    recoveries_.push_back(now_);
    return false;
  }
  const Time free = recoveries_.front() + limits.window;
  capped_ = std::to_string(recoveries_.size()) + " recoveries within the last " +
            std::to_string(limits.window.count() / 1000000000) + " s (limits.recoveries); the next one, for '" +
            reason + "', begins when the oldest is past it";
  waiting_for_ = "the limits: " + capped_;
  Want(free);
  return true;
}

}  // namespace locum
