#include "node/node_core.h"

#include <algorithm>
#include <utility>

namespace locum::node {
namespace {

// A worker that closed its connection is about to end, and its own exit status says more than ours would.
constexpr Duration kLeavePatience = std::chrono::seconds(1);
// To save the stacks of one that hangs.
constexpr Duration kStackPatience = std::chrono::seconds(3);
constexpr std::string_view kLogEnding = ".log";
constexpr uint32_t kDrawAhead = 8;
constexpr uint32_t kMaxSlots = 1024;

// What concerns the worker; that it should be ended or run is for this node.
WorkerOrder ForWorker(WorkerOrder order) {
  order.retire = Incarnation();
  order.run = true;
  return order;
}

std::string Name(const WorkerRecord& record) {
  return "slot " + std::to_string(record.slot.value) + " worker " + ToHex(record.worker.value);
}

}  // namespace

NodeCore::NodeCore(Identity identity) : identity_(std::move(identity)) {}

std::vector<Action> NodeCore::Step(const Event& event, Time now) {
  actions_.clear();
  // While this process stood still nobody was heard, and what was said meanwhile comes only now.
  const Duration gap = stepped_at_ == kNever ? Duration(0) : now - stepped_at_;
  stepped_at_ = now;
  if (gap > kOwnPause) {
    for (auto& [id, worker] : workers_) worker.Excuse(gap);
  }
  std::visit([&](const auto& e) { On(e, now); }, event);
  WatchWorkers(now);
  ReportIfDue(now);
  Do(WakeAt{NextWish(now)});
  return std::move(actions_);
}

// ---- The keeper and the workers ----------------------------------------------------------------------------

void NodeCore::On(const KeeperThere& there, Time) {
  keeper_ = there.hello;
  notes_ = remembered_ = there.notes;
  awaited_ = std::set<Incarnation>(there.hello.workers.begin(), there.hello.workers.end());
  if (awaited_.empty()) SayHello();
}

void NodeCore::On(const WorkerSeen& seen, Time now) {
  const WorkerRecord& record = seen.record;
  bool known = workers_.count(record.worker) != 0;
  Worker& worker = workers_[record.worker];
  bool joined_now = record.joined && !worker.record.joined;
  // Nobody here asked for it, so the keeper itself was told to end.
  leaving_ |= known && record.stopping && !worker.record.stopping && !worker.stopping;
  worker.record = record;
  worker.has_joined |= record.joined;
  Place& place = places_[record.slot];
  Worker* holder = Find(place.current);
  if (holder == nullptr || (!holder->Alive() && !record.ended)) place.current = record.worker;
  if (!known) {  // adopted from an earlier agent
    for (const Notes::Log& log : notes_.logs) {
      if (log.worker == record.worker) {
        worker.log_offset = log.offset;
        worker.run_rank = log.rank;
      }
    }
    Do(Note{"worker_adopted", Name(record)});
    if (record.joined) Do(AskAgain{record.worker});
  }
  if (joined_now) Do(Note{"worker_joined", Name(record) + " pid " + std::to_string(record.pid)});
  if (record.ended) Do(Note{"worker_exited", Name(record) + ": " + worker.Report().exit->what});
  report_now_ = true;
  // Only who knows all workers may listen to a coordinator: an empty slot gets a new one.
  if (awaited_.erase(record.worker) != 0 && awaited_.empty()) SayHello();
  if (awaited_.empty() && introduced_as_ != Trains()) SayHello();
  Follow(record.slot, &place, now);
}

void NodeCore::On(const WorkerIsReady& ready, Time) {
  Worker* worker = Find(ready.worker);
  if (worker == nullptr || !worker->Alive()) return;
  bool changed = !worker->ready || !(*worker->ready == ready.info);
  worker->ready = ready.info;
  if (!changed) return;
  if (link_up_) Do(SendReady{worker->record.slot, ready.worker, ready.info});
  report_now_ = true;
}

void NodeCore::On(const WorkerSaid& said, Time) {
  Worker* worker = Find(said.worker);
  if (worker == nullptr || !worker->Alive()) return;
  report_now_ = report_now_ || !worker->said || !(*worker->said == said.state);
  worker->Said(said.state);
}

void NodeCore::On(const WorkerLeft& left, Time now) {
  Worker* worker = Find(left.worker);
  if (worker == nullptr || !worker->Alive()) return;
  if (worker->said && worker->said->done) return;  // it has nothing more to say
  worker->why_gone = left.why;
  worker->gone_by = now + kLeavePatience;
}

void NodeCore::On(const PagesRead& read, Time now) {
  for (const PageReading& page : read.pages) {
    Worker* worker = Find(page.worker);
    if (worker != nullptr && worker->Alive()) worker->Read(page, now);
  }
}

void NodeCore::On(const StopStored& stored, Time) {
  Worker* worker = Find(stored.page.worker);
  if (worker == nullptr || !worker->Alive()) return;
  worker->page = stored.page;
  report_now_ = true;
}

void NodeCore::On(const LogMeasured& measured, Time) {
  Worker* worker = Find(measured.worker);
  if (worker == nullptr) return;
  worker->log_offset = measured.bytes;
  report_now_ = true;
  KeepNotes();
}

void NodeCore::On(const UsageRead& read, Time) { usage_ = read.usage; }

void NodeCore::On(const Tick&, Time) {}

// ---- The coordinator -----------------------------------------------------------------------------------------

std::string NodeCore::WhyStranger(const Welcome& welcome) const {
  if (welcome.term < notes_.term) {
    return "its term " + std::to_string(welcome.term.value) + " is lower than " + std::to_string(notes_.term.value);
  }
  const Incarnation ours = Trains();
  if (ours != Incarnation() && welcome.cluster != ours && welcome.adopts != ours) {
    return "it leads cluster " + ToHex(welcome.cluster.value) + ", the workers here belong to " +
           ToHex(notes_.cluster.value);
  }
  return "";
}

// The cluster whose workers live here; 0: none does.
Incarnation NodeCore::Trains() const {
  bool holds = std::any_of(workers_.begin(), workers_.end(), [](const auto& w) { return w.second.Alive(); });
  return holds ? notes_.cluster : Incarnation();
}

void NodeCore::On(const CoordinatorUp& up, Time now) {
  std::string stranger = WhyStranger(up.welcome);
  if (!stranger.empty()) {
    link_up_ = false;
    Do(Note{"coordinator_not_obeyed", stranger});
    // It would not have welcomed the node that this is now: its hello came before a worker was there.
    Do(IntroduceAnew{});
    return;
  }
  welcome_ = up.welcome;
  welcome_->grace = std::clamp(welcome_->grace, Duration(0), kMaxGrace);
  welcome_->heartbeat = std::max(welcome_->heartbeat, kFastestHeartbeat);
  link_up_ = true;
  report_now_ = true;
  report_at_ = now;
  if (notes_.term < up.welcome.term) sequence_ = 0;
  notes_.term = up.welcome.term;
  notes_.job = up.welcome.job;
  notes_.cluster = up.welcome.cluster;
  KeepNotes();
  SayHello();
  Do(Note{"coordinator_up", "term " + std::to_string(notes_.term.value) + " job " + notes_.job});
  for (const auto& [id, worker] : workers_) {
    if (worker.ready && worker.Alive()) Do(SendReady{worker.record.slot, id, *worker.ready});
  }
}

bool NodeCore::Obeys(const NodeOrder& order) {
  if (!link_up_ || ending_) return false;
  if (order.term < notes_.term || (order.term == notes_.term && order.sequence < sequence_)) {
    Do(Note{"order_ignored", "term " + std::to_string(order.term.value) + " sequence " +
                                 std::to_string(order.sequence) + " is older than what is obeyed"});
    return false;
  }
  if (order.term > notes_.term) {
    notes_.term = order.term;
    KeepNotes();
    SayHello();
  }
  sequence_ = order.sequence;
  quick_ = order.quick;
  report_now_ = true;
  return true;
}

void NodeCore::On(const Ordered& ordered, Time now) {
  const NodeOrder& order = ordered.order;
  if (!Obeys(order)) return;
  if (order.shutdown) {
    EndAll(0, order.reason);
    return;
  }
  for (const WorkerOrder& one : order.workers) {
    if (one.slot.value >= kMaxSlots) continue;
    Place& place = places_[one.slot];
    place.order = one;
    Follow(one.slot, &place, now);
  }
}

void NodeCore::On(const CoordinatorRefused& refused, Time) {
  link_up_ = false;
  if (refused.reason != refusal_) Do(Note{"coordinator_refused", refused.reason});
  refusal_ = refused.reason;
  // A stranger's word does not end what trains; the coordinator of this job may come back, or adopt.
  if (Trains() != Incarnation() && !refused.end) return;
  EndAll(1, "the coordinator refuses this node: " + refused.reason);
}

void NodeCore::On(const CoordinatorLost& lost, Time) {
  if (link_up_) Do(Note{"coordinator_lost", lost.reason});
  link_up_ = false;
}

// ---- Making it so ----------------------------------------------------------------------------------------------

// Brings one slot closer to its order; what takes time comes back here as an event.
void NodeCore::Follow(Slot slot, Place* place, Time now) {
  if (!place->order || !welcome_ || ending_) return;
  const WorkerOrder& order = *place->order;
  Worker* worker = Find(place->current);
  if (worker != nullptr) {
    bool retired = order.retire == place->current;
    if (worker->Alive()) {
      if (retired && order.hung && !worker->stopping) {
        SaveFirst(worker, "it did not move any more", now);
      } else if (retired || !order.run) {
        End(worker, welcome_->grace, retired ? "retired by the coordinator" : "not wanted by the coordinator");
      } else if (order.worker == place->current) {
        Tell(worker, order, now);
      }
      return;
    }
    if (!retired) return;
    Do(Forget{place->current});
    workers_.erase(place->current);
    place->current = Incarnation();
    report_now_ = true;
    KeepNotes();
  }
  if (order.run) Start(slot, place);
}

void NodeCore::Start(Slot slot, Place* place) {
  if (fresh_.empty()) {
    if (!std::exchange(drawing_, true)) Do(Draw{kDrawAhead});
    return;
  }
  Incarnation id = fresh_.back();
  fresh_.pop_back();
  std::string stem = identity_.dir + "/worker-" + std::to_string(slot.value) + "-" + ToHex(id.value).substr(0, 8);
  Worker& worker = workers_[id];
  worker.record.slot = slot;
  worker.record.worker = id;
  worker.record.log = stem + std::string(kLogEnding);
  worker.record.step_log = stem + ".steps";
  place->current = id;
  report_now_ = true;
  Do(Note{"worker_started", Name(worker.record) + " log " + worker.record.log});
  Do(StartWorker{slot, id, welcome_->command, welcome_->job, welcome_->seed, welcome_->workers_per_node,
                 welcome_->grace, worker.record.log, worker.record.step_log});
}

void NodeCore::On(const Drawn& drawn, Time now) {
  drawing_ = false;
  for (Incarnation one : drawn.fresh) {
    bool used = one.value == 0 || workers_.count(one) != 0;
    if (!used && fresh_.size() < kMaxSlots) fresh_.push_back(one);
  }
  for (auto& [slot, place] : places_) Follow(slot, &place, now);
}

void NodeCore::Tell(Worker* worker, const WorkerOrder& order, Time now) {
  if (!worker->record.joined) return;
  WorkerOrder relayed = ForWorker(order);
  if (worker->told && *worker->told == relayed) return;
  bool late = worker->told && relayed.mode != Mode::kIdle && relayed.generation < worker->told->generation;
  if (late) return;
  if (!worker->page || worker->page->stop_at != relayed.stop_at) {
    Do(StoreStop{worker->record.worker, relayed.stop_at});
  }
  bool runs = relayed.mode == Mode::kRun && relayed.rank != kNoRank;
  // What it writes while it holds a rank is that rank's output. In the first generation that is all: before it there
  // was no other holder whose output it would repeat.
  bool newly = runs && relayed.rank != worker->run_rank;
  bool measure = newly && relayed.generation > Generation(1);
  if (runs) worker->run_rank = relayed.rank;
  if (newly && !measure) KeepNotes();
  if (relayed.mode == Mode::kIdle) worker->run_rank = kNoRank;
  Do(Relay{worker->record.worker, relayed, measure ? worker->record.log : ""});
  if (!relayed.refuse.empty() && worker->gone_by == kNever) {
    worker->why_gone = "refused: " + relayed.refuse;
    worker->gone_by = now + welcome_->grace;
  }
  worker->Ordered(relayed, now);
}

// What it hangs in is evidence that ends with it.
void NodeCore::SaveFirst(Worker* worker, const std::string& why, Time now) {
  if (std::exchange(worker->saving_stacks, true)) return;
  worker->why_gone = why;
  worker->gone_by = now + kStackPatience;
  std::string file = worker->record.log;
  if (file.ends_with(kLogEnding)) file.resize(file.size() - kLogEnding.size());
  file += ".stacks";
  Do(Note{"worker_hangs", Name(worker->record) + ": its stacks go to " + file});
  Do(SaveStacks{worker->record.worker, worker->record.pid, file});
}

void NodeCore::On(const StacksSaved& saved, Time now) {
  Worker* worker = Find(saved.worker);
  if (worker != nullptr && worker->Alive() && worker->saving_stacks) worker->gone_by = now;
}

void NodeCore::End(Worker* worker, Duration grace, const std::string& why) {
  if (worker->stopping && worker->stop_grace <= grace) return;
  if (!worker->stopping || worker->why_ended.empty()) worker->why_ended = why;
  worker->stopping = true;
  worker->stop_grace = grace;
  Do(Note{"worker_ending", Name(worker->record) + ": " + why});
  Do(EndWorker{StopWorker{worker->record.worker, grace}});
}

void NodeCore::EndAll(int32_t status, const std::string& why) {
  if (ending_) return;
  ending_ = true;
  Duration grace = welcome_ ? welcome_->grace : std::chrono::seconds(5);
  Do(Note{"node_ending", why});
  Do(EndNode{ShutdownNode{grace, status, why}});
}

// The ladder after a freeze, judged at every step.
void NodeCore::WatchWorkers(Time now) {
  for (auto& [id, worker] : workers_) {
    if (!worker.Alive() || ending_) continue;
    Duration grace = welcome_ ? welcome_->grace : Duration(0);
    if (worker.gone_by <= now) {
      worker.gone_by = kNever;
      End(&worker, worker.saving_stacks ? Duration(0) : grace, worker.why_gone);
    }
    if (!welcome_) continue;
    if (worker.WantsAbort()) {
      Generation broken = worker.page ? worker.page->word.generation : worker.said->word.generation;
      Do(Abort{id, broken});
    }
    // While training stands still: does the process run at all?
    const bool has_rank = worker.told && worker.told->rank != kNoRank;
    if ((quick_ || worker.Waits(now)) && has_rank && worker.WantsAsking(now)) Do(AskAgain{id});
    std::string overdue = worker.Overdue(DeadlinesOf(*welcome_), now);
    if (overdue.empty()) continue;
    if (worker.stopping) {
      End(&worker, Duration(0), overdue);
    } else {
      SaveFirst(&worker, overdue, now);
    }
  }
}

Worker* NodeCore::Find(Incarnation worker) {
  auto it = workers_.find(worker);
  return it == workers_.end() ? nullptr : &it->second;
}

}  // namespace locum::node
