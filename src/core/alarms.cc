// What an operator should know, as long as it is so. Derived from the state in every Step; the history says when an
// alarm begins and ends.
#include "core/impl.h"

namespace locum {

void Coordinator::Impl::On(const StoreChanged& e) {
  store_error_ = e.error;
  if (store_waits_ && !e.waits) RestartDeadlines();
  store_waits_ = e.waits;
}

void Coordinator::Impl::UpdateAlarms() {
  std::map<std::pair<std::string, std::string>, std::string> raised;
  const bool over = Over() || p_.phase == JobPhase::kFinishing;
  if (!store_error_.empty()) raised[{"store", ""}] = store_error_;
  if (waiting_for_.empty()) {
    waiting_since_ = now_;
  } else if (p_.phase != JobPhase::kGathering || Adopting()) {
    const Time due = waiting_since_ + kWaitAlarm;
    if (now_ >= due) {
      raised[{"job_waits", ""}] = "the job waits for " + waiting_for_;
    } else {
      Want(due);
    }
  }
  if (stalled_ && p_.phase == JobPhase::kRunning) {
    raised[{"no_progress", ""}] =
        "no rank has made a step for the time of timeouts.hang, and none waits for another: one slow step, or all hang";
  }
  if (!capped_.empty()) raised[{"recoveries_capped", ""}] = capped_;
  uint32_t spares = 0;
  for (const auto& [name, node] : nodes_) {
    if (over) break;
    spares += node.role == Role::kSpare && UsableSpare(node);
    if (node.stranger && node.connected) {
      raised[{"node_of_other_cluster", name}] =
          "it trains for another coordinator, and obeys this one only after `locum adopt`";
    }
    if (node.state == NodeState::kSuspect) {
      raised[{"node_silent", name}] = node.reason + (waiting_for_.empty() ? ", and its job goes on" : "");
    }
    if (node.state == NodeState::kFailed) raised[{"node_failed", name}] = node.reason;
    if (node.state == NodeState::kQuarantined) raised[{"node_quarantined", name}] = node.reason;
    for (const auto& [slot, info] : node.slots) {
      if (info.report && info.report->stuck) raised[{"worker_stuck", name}] = kStuck;
    }
  }
  if (!over && p_.phase != JobPhase::kGathering && p_.spec.spares > 0 && spares == 0) {
    raised[{"no_spare", ""}] = "no spare is ready; the next node that fails stops the job until one is";
  }
  for (auto at = alarms_.begin(); at != alarms_.end();) {
    if (raised.count(at->first)) {
      ++at;
      continue;
    }
    Note& note = AddNote("alarm_cleared");
    note.node = at->first.second;
    note.details = {{"alarm", at->first.first}};
    at = alarms_.erase(at);
  }
  for (const auto& [key, text] : raised) {
    const auto [at, fresh] = alarms_.try_emplace(key, Alarm{text, now_});
    at->second.text = text;
    if (!fresh) continue;
    Note& note = AddNote("alarm_raised");
    note.node = key.second;
    note.reason = text;
    note.details = {{"alarm", key.first}};
  }
}

}  // namespace locum
