// What the agent's decisions tell: who this node is, what the next agent must know, how the workers are, and when.
#include <algorithm>
#include <utility>

#include "node/node_core.h"

namespace locum::node {
void NodeCore::SayHello() {
  NodeHello hello;
  hello.name = identity_.name;
  hello.protocol = kProtocolVersion;
  hello.version = kVersion;
  hello.job = notes_.job;
  hello.cluster = introduced_as_ = Trains();
  hello.address = identity_.address;
  hello.keeper = keeper_.keeper;
  hello.agent = identity_.agent;
  hello.keeper_pid = keeper_.keeper_pid;
  hello.agent_pid = identity_.agent_pid;
  hello.term = notes_.term;
  hello.dir = identity_.dir;
  Do(Introduce{std::move(hello)});
}

void NodeCore::KeepNotes() {
  notes_.logs.clear();
  for (const auto& [id, worker] : workers_) {
    if (worker.run_rank != kNoRank) notes_.logs.push_back({id, worker.log_offset, worker.run_rank});
  }
  if (notes_ == remembered_) return;
  remembered_ = notes_;
  Do(Remember{notes_});
}

NodeReport NodeCore::Report(Time now) const {
  NodeReport report;
  report.term = notes_.term;
  report.order = sequence_;
  report.usage = usage_;
  report.leaving = leaving_;
  for (const auto& [slot, place] : places_) {
    auto it = workers_.find(place.current);
    if (it == workers_.end()) continue;
    report.workers.push_back(it->second.Report());
    report.workers.back().waits = it->second.Waits(now);
    report.workers.back().mute = it->second.Mute(welcome_->freeze_deadline, now);
  }
  return report;
}

void NodeCore::ReportIfDue(Time now) {
  if (!link_up_) return;
  const bool waits = std::any_of(workers_.begin(), workers_.end(), [&](const auto& w) { return w.second.Waits(now); });
  const bool mute = std::any_of(workers_.begin(), workers_.end(),
                                [&](const auto& w) { return w.second.Mute(welcome_->freeze_deadline, now); });
  report_now_ |= waits != reported_waiting_ || mute != reported_mute_;
  const bool quick = quick_ || waits;
  const Duration pause = quick ? std::max(welcome_->heartbeat / kQuicker, kFastestHeartbeat) : welcome_->heartbeat;
  report_at_ = std::min(report_at_, reported_at_ + pause);
  if (!report_now_ && now < report_at_) return;
  report_now_ = false;
  reported_waiting_ = waits;
  reported_mute_ = mute;
  reported_at_ = now;
  report_at_ = now + pause;
  Do(SendReport{Report(now)});
}

Time NodeCore::NextWish(Time now) const {
  Time wish = link_up_ ? report_at_ : kNever;
  for (const auto& [id, worker] : workers_) {
    if (!worker.Alive() || ending_) continue;
    // The page changes without a message.
    if (link_up_ && worker.run_rank != kNoRank) wish = std::min(wish, now + kWaitsAfter);
    wish = std::min(wish, worker.gone_by);
    if (welcome_) wish = std::min(wish, worker.NextDeadline(DeadlinesOf(*welcome_), now));
  }
  return wish;
}

}  // namespace locum::node
