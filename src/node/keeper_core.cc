#include "node/keeper_core.h"

#include <algorithm>
#include <utility>

#include "node/exit_text.h"

namespace locum::keep {
namespace {

// Whose end speaks for the worker: the process that joined; else what was started, unless it only went because its
// reaper cleared away behind the one that joined.
WorkerExit Judge(const WorkerEnded& ended, bool other_joined, bool stopping) {
  WorkerExit exit;
  exit.stopped = stopping;
  std::optional<ProcessEnd> end = ended.started;
  if (ended.joined) {
    end = ended.joined;
  } else if (other_joined && ended.started_was_killed && !stopping) {
    end.reset();
  }
  if (end) {
    exit.status = end->status;
    exit.signal = end->signal;
    exit.what = DescribeEnd(*end);
  } else {
    exit.status = 1;
    exit.what = other_joined ? "the process that joined is gone; its exit status went to its parent" : "gone";
  }
  if (ended.reaper_lost) exit.what += " (its reaper was killed)";
  return exit;
}

}  // namespace

KeeperCore::KeeperCore(Incarnation keeper, int32_t pid, Limits limits) : keeper_(keeper), pid_(pid), limits_(limits) {}

std::vector<Action> KeeperCore::Step(const Event& event, Time now) {
  actions_.clear();
  if (phase_ == Phase::kOver) return {};
  std::visit([&](const auto& e) { On(e, now); }, event);
  Advance(now);
  if (phase_ != Phase::kOver) Do(WakeAt{NextWish()});
  return std::move(actions_);
}

void KeeperCore::On(const Begin&, Time now) { BeginAgent(now); }

void KeeperCore::On(const Tick&, Time) {}

void KeeperCore::On(const StartAsked& start, Time) {
  if (phase_ != Phase::kUp || workers_.count(start.worker) != 0) return;  // a repeated order is harmless
  Worker& worker = workers_[start.worker];
  worker.record.slot = start.slot;
  worker.record.worker = start.worker;
  worker.record.log = start.log;
  worker.record.step_log = start.step_log;
  worker.grace = start.grace;
  if (workers_.size() > limits_.workers) {
    WorkerExit exit;
    exit.status = 126;
    exit.what = "cannot start: this node already holds " + std::to_string(limits_.workers) + " workers";
    MarkEnded(&worker, std::move(exit));
    return;
  }
  Do(LaunchWorker{start.worker});
}

void KeeperCore::On(const StopWorker& stop, Time now) {
  Worker* worker = Find(stop.worker);
  if (worker != nullptr) BeginStop(worker, stop.grace, now);
}

void KeeperCore::On(const ForgetWorker& forget, Time) {
  Worker* worker = Find(forget.worker);
  if (worker == nullptr || !worker->record.ended) return;
  workers_.erase(forget.worker);
  Do(DropWorker{forget.worker});
}

void KeeperCore::On(const ShutdownNode& shutdown, Time now) {
  BeginEnd(shutdown.grace, shutdown.status, shutdown.reason, now);
}

void KeeperCore::On(const RememberNotes& notes, Time) {
  if (notes.notes.size() <= kMaxNotes) notes_ = notes.notes;
}

void KeeperCore::On(const AgentEnded& ended, Time now) {
  agent_runs_ = false;
  agent_kill_at_ = kNever;
  if (phase_ != Phase::kUp) return;
  std::string what = ended.cannot_run.empty() ? DescribeEnd(ended.end) : ended.cannot_run;
  Do(Note{"agent_ended", what});
  if (!ended.cannot_run.empty() && agent_starts_ == 1) {
    BeginEnd(Duration(0), 1, "the node's daemon does not start: " + what, now);
    return;
  }
  deaths_in_a_row_ = now - agent_since_ >= limits_.agent_proven ? 1 : deaths_in_a_row_ + 1;
  if (deaths_in_a_row_ == 1) {
    BeginAgent(now);
    return;
  }
  uint32_t doublings = std::min(deaths_in_a_row_ - 2, 16u);
  agent_restart_at_ = now + std::min(limits_.restart_first * (1 << doublings), limits_.restart_last);
}

void KeeperCore::On(const WorkerStarted& started, Time) {
  Worker* worker = Find(started.worker);
  if (worker == nullptr || worker->record.ended) return;
  if (!worker->record.joined) worker->record.pid = started.pid;
  Do(TellWorker{worker->record});
}

void KeeperCore::On(const WorkerNotStarted& failed, Time) {
  Worker* worker = Find(failed.worker);
  if (worker == nullptr || worker->record.ended) return;
  WorkerExit exit;
  exit.status = failed.status;
  exit.what = failed.what;
  exit.stopped = worker->record.stopping;
  MarkEnded(worker, std::move(exit));
}

void KeeperCore::On(const WorkerEnded& ended, Time) {
  Worker* worker = Find(ended.worker);
  if (worker == nullptr || worker->record.ended) return;
  WorkerExit exit = Judge(ended, worker->joined_gone, worker->record.stopping);
  exit.log_tail = PrintableTail(ended.log_tail, limits_.log_tail);
  MarkEnded(worker, std::move(exit));
}

void KeeperCore::On(const JoinedEnded& gone, Time now) {
  Worker* worker = Find(gone.worker);
  if (worker == nullptr || worker->record.ended || worker->joined_gone) return;
  worker->joined_gone = true;
  Duration patience = gone.end_is_told ? Duration(0) : limits_.wrapper_patience;
  worker->kill_at = std::min(worker->kill_at, now + patience);
}

void KeeperCore::On(const JoinAsked& join, Time) {
  Worker* worker = Find(join.worker);
  std::string refusal;
  if (join.protocol != kProtocolVersion) {
    refusal = "this worker's library (version " + join.library + ") speaks protocol " + std::to_string(join.protocol) +
              ", this node (version " + kVersion + ") speaks " + std::to_string(kProtocolVersion) +
              "; build the program with the library of this version";
  } else if (worker == nullptr || worker->record.ended) {
    refusal = "no worker " + ToHex(join.worker.value) + " runs on this node; was the program started by another one?";
  } else if (worker->record.joined) {
    refusal = "worker " + ToHex(join.worker.value) + " has already joined, as process " +
              std::to_string(worker->record.pid) + "; only one process of a worker may join";
  } else if (worker->record.stopping || phase_ != Phase::kUp) {
    refusal = "worker " + ToHex(join.worker.value) + " is being stopped";
  }
  if (worker == nullptr || !refusal.empty()) {
    Do(Note{"join_refused", refusal});
    Do(RefuseJoin{join.connection, std::move(refusal)});
    return;
  }
  worker->record.joined = true;
  worker->record.pid = join.pid;
  Do(Admit{join.connection, join.worker});
  Do(TellWorker{worker->record});
}

void KeeperCore::On(const EndAsked& asked, Time now) {
  // One Ctrl-C may arrive twice, from the terminal and from a parent that passes it on as SIGTERM. Only a second
  // one of the same kind means impatience.
  bool again = ++asked_[asked.signal] > 1 && asked.signal != 0;
  BeginEnd(again ? std::optional(Duration(0)) : std::nullopt, asked.signal == 0 ? 0 : 128 + asked.signal, "", now);
  if (again && agent_runs_) {
    agent_kill_at_ = now;
  }
}

void KeeperCore::BeginAgent(Time now) {
  agent_restart_at_ = kNever;
  agent_since_ = now;
  agent_runs_ = true;
  ++agent_starts_;
  Do(Note{"agent_started", "start " + std::to_string(agent_starts_)});
  Do(StartAgent{});
  KeeperHello hello;
  hello.keeper = keeper_;
  hello.keeper_pid = pid_;
  hello.agent_starts = agent_starts_;
  hello.notes = notes_;
  for (const auto& [id, worker] : workers_) hello.workers.push_back(id);
  Do(TellHello{std::move(hello)});
  for (const auto& [id, worker] : workers_) Do(TellWorker{worker.record});
}

void KeeperCore::BeginStop(Worker* worker, Duration grace, Time now) {
  if (worker->record.ended) return;
  bool first = !worker->record.stopping;
  worker->record.stopping = true;
  worker->kill_at = std::min(worker->kill_at, now + grace);
  if (first && grace > Duration(0)) Do(TermWorker{worker->record.worker});
  if (first) Do(TellWorker{worker->record});
}

void KeeperCore::KillNow(Worker* worker, Time now) {
  worker->kill_at = kNever;
  if (worker->suspect_at != kNever) return;
  worker->given_up = false;
  worker->suspect_at = now + limits_.kill_patience;
  Do(KillWorker{worker->record.worker});
}

void KeeperCore::MarkEnded(Worker* worker, WorkerExit exit) {
  worker->record.ended = true;
  worker->record.joined = worker->record.stuck = false;
  worker->record.exit = std::move(exit);
  worker->kill_at = worker->suspect_at = kNever;
  Do(Note{"worker_ended", "slot " + std::to_string(worker->record.slot.value) + " worker " +
                              ToHex(worker->record.worker.value) + ": " + worker->record.exit.what});
  Do(TellWorker{worker->record});
}

void KeeperCore::BeginEnd(std::optional<Duration> grace, int32_t status, const std::string& reason, Time now) {
  if (phase_ == Phase::kUp) {
    phase_ = Phase::kStoppingWorkers;
    Do(CloseDoor{});  // first: killed on its way out, a keeper leaves no socket
    status_ = status;
    reason_ = reason;
    agent_restart_at_ = kNever;
    Do(Note{"node_ending", reason.empty() ? "status " + std::to_string(status) : reason});
  }
  for (auto& [id, worker] : workers_) BeginStop(&worker, grace.value_or(worker.grace), now);
}

bool KeeperCore::AllEnded() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& w) { return w.second.record.ended; });
}

bool KeeperCore::AllEndedOrGivenUp() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& w) { return w.second.record.ended || w.second.given_up; });
}

// What time has brought, and the way out.
void KeeperCore::Advance(Time now) {
  for (auto& [id, worker] : workers_) {
    if (worker.kill_at <= now) KillNow(&worker, now);
    if (worker.suspect_at > now) continue;
    worker.suspect_at = kNever;
    if (worker.reaper_killed) {
      worker.given_up = true;
      if (!std::exchange(worker.record.stuck, true)) Do(TellWorker{worker.record});
      continue;
    }
    worker.reaper_killed = true;
    worker.suspect_at = now + limits_.kill_patience;
    Do(Note{"worker_does_not_end", "worker " + ToHex(id.value) + ": its reaper is ended, too"});
    Do(KillReaper{id});
  }
  if (agent_restart_at_ <= now) BeginAgent(now);
  if (agent_kill_at_ <= now) {
    agent_kill_at_ = kNever;
    Do(KillAgent{});
  }
  if (phase_ == Phase::kStoppingWorkers && AllEndedOrGivenUp()) {
    if (!AllEnded()) {
      status_ = status_ == 0 ? 1 : status_;
      reason_ = "a process of a worker does not end, not even by SIGKILL";
    }
    phase_ = Phase::kStoppingAgent;
    if (agent_runs_) {
      Do(LeaveAgent{});
      if (agent_kill_at_ == kNever) agent_kill_at_ = now + limits_.agent_leave;
    }
  }
  if (phase_ == Phase::kStoppingAgent && !agent_runs_) {
    phase_ = Phase::kOver;
    Do(EndKeeper{status_, reason_});
  }
}

Time KeeperCore::NextWish() const {
  Time wish = std::min(agent_restart_at_, agent_kill_at_);
  for (const auto& [id, worker] : workers_) {
    wish = std::min({wish, worker.kill_at, worker.suspect_at});
  }
  return wish;
}

KeeperCore::Worker* KeeperCore::Find(Incarnation worker) {
  auto it = workers_.find(worker);
  return it == workers_.end() ? nullptr : &it->second;
}

}  // namespace locum::keep
