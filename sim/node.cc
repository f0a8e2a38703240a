// The nodes of the simulator: keeper and agent, their stream to the coordinator, and what is done to them.
#include <algorithm>

#include "sim/cluster.h"

namespace locum::sim {

namespace {

constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }

}  // namespace

void Cluster::AddNode(const std::string& name) {
  LOCUM_CHECK(!nodes_.count(name));
  nodes_[name].name = name;
  StartNode(name);
}

void Cluster::StartNode(const std::string& name) {
  SimNode& node = nodes_.at(name);
  LOCUM_CHECK(!node.up);
  node.up = node.agent = true;
  node.keeper = Incarnation(random_.Next());
  node.agent_id = Incarnation(random_.Next());
  node.job.clear();
  node.term = Term();
  node.cluster = Incarnation();
  node.leaving = false;
  node.workers.clear();
  ++node.epoch;
  After(Delay(Ms(20)), [this, &node, epoch = node.epoch] {
    if (node.epoch == epoch) Connect(node);
  });
  Heartbeat(name, node.epoch);
}

bool Cluster::Waits(const Worker& worker) const {
  return worker.alive && worker.state.position == Position::kInCollective &&
         now_ >= worker.collective_since + kWaitsAfter;
}

// Looks often, and reports when a worker begins or ceases to wait, else in its rhythm.
void Cluster::Heartbeat(const std::string& name, uint64_t epoch) {
  After(kWaitsAfter, [this, name, epoch] {
    SimNode& node = nodes_.at(name);
    if (node.epoch != epoch) return;
    if (node.agent && node.stream == 0 && !node.connecting) Connect(node);
    const bool waits =
        std::any_of(node.workers.begin(), node.workers.end(), [this](const auto& w) { return Waits(*w.second); });
    const Duration heartbeat = spec_.timeouts.heartbeat;
    const Duration pause = waits || node.order.quick ? heartbeat / kQuicker : heartbeat;
    if (waits != node.reported_waiting || now_ >= node.reported_at + pause) SendReport(node);
    Heartbeat(name, epoch);
  });
}

void Cluster::Connect(SimNode& node) {
  if (!core_ || node.cut || !node.agent || node.stream != 0) return;
  node.stream = ++next_stream_;
  node.welcomed = false;
  streams_[node.stream] = node.name;
  NodeHello hello;
  hello.name = node.name;
  hello.protocol = kProtocolVersion;
  hello.version = kVersion;
  hello.job = node.job;
  hello.cluster = TrainsFor(node);
  hello.address = "10.0.0.1";
  hello.keeper = node.keeper;
  hello.agent = node.agent_id;
  hello.term = node.term;
  After(kStreamHop, [this, &node, hello, stream = node.stream] {
    if (node.stream == stream) Deliver(NodeConnected{stream, hello});
  });
}

void Cluster::DropStream(SimNode& node, bool tell) {
  const StreamId stream = node.stream;
  node.stream = 0;
  node.welcomed = false;
  if (stream == 0 || !tell) return;
  After(Hop(), [this, stream] { Deliver(NodeLost{stream, "connection reset"}); });
}

void Cluster::KillNode(const std::string& name) {
  SimNode& node = nodes_.at(name);
  LOCUM_CHECK(node.up);
  node.up = node.agent = false;
  ++node.epoch;
  DropStream(node, !node.cut);
  for (auto& [slot, worker] : node.workers) {
    if (!worker->alive) continue;
    worker->alive = false;
    ++worker->activity;
    if (!node.Unreached()) BreakPeers(*worker);
  }
  node.workers.clear();
}

void Cluster::KillAgent(const std::string& name) {
  SimNode& node = nodes_.at(name);
  node.agent = false;
  DropStream(node, !node.cut);
  After(Delay(Ms(60)), [this, &node, epoch = node.epoch] {
    if (node.epoch != epoch) return;
    node.agent = true;
    node.agent_id = Incarnation(random_.Next());
    node.term = Term();
    Connect(node);
  });
}

void Cluster::CutLink(const std::string& name) { nodes_.at(name).cut = true; }
void Cluster::CutPeers(const std::string& name) { nodes_.at(name).apart = true; }

void Cluster::HealLink(const std::string& name) {
  SimNode& node = nodes_.at(name);
  // What was sent in between is lost with the connection.
  if (node.cut) DropStream(node, true);
  node.cut = node.apart = false;
  for (auto& [key, collective] : collectives_) TryComplete(key.first, collective);
  for (const auto& worker : all_workers_) BreakIfPeerDead(worker);
}

// Live workers that hold the rank, or did and do not know better.
void Cluster::ForHolders(Rank rank, const std::function<void(Worker&)>& what) {
  for (const auto& worker : all_workers_) {
    if (worker->alive && worker->rank == rank) what(*worker);
  }
}

void Cluster::KillWorker(Rank rank) {
  for (const auto& worker : all_workers_) {
    if (!worker->alive || worker->rank != rank) continue;
    const auto placed = core_ ? View().ranks : std::vector<RankView>();
    if (rank.value < placed.size() && placed[rank.value].worker != worker->id) continue;
    EndWorker(*worker, {0, 9, false, "killed by SIGKILL", ""});
    return;
  }
}

void Cluster::ExitWorker(Rank rank, int status) {
  ForHolders(rank, [&](Worker& worker) {
    worker.state.position = Position::kComputing;
    EndWorker(worker, {status, 0, false, "exit status " + std::to_string(status), ""});
  });
}

void Cluster::FailProgram(Rank rank, uint64_t step) {
  failing_rank_ = rank;
  failing_step_ = step;
}

void Cluster::LeaveNode(const std::string& name) {
  SimNode& node = nodes_.at(name);
  if (!node.up || node.leaving) return;
  node.leaving = true;
  SendReport(node);
  After(Ms(50), [this, name, epoch = node.epoch] {
    if (nodes_.at(name).up && nodes_.at(name).epoch == epoch) KillNode(name);
  });
}

void Cluster::StickWorker(Rank rank) {
  ForHolders(rank, [&](Worker& worker) {
    worker.alive = false;
    worker.stuck = true;
    ++worker.activity;
    SendReport(*worker.node);
  });
}

bool Cluster::Stuck(const std::string& name) const {
  const auto& workers = nodes_.at(name).workers;
  return std::any_of(workers.begin(), workers.end(), [](const auto& w) { return w.second->stuck; });
}

bool Cluster::NeverTrained(const std::string& name) const {
  const auto& workers = nodes_.at(name).workers;
  return std::all_of(workers.begin(), workers.end(),
                     [](const auto& w) { return w.second->state.word.generation == Generation(0); });
}

Incarnation Cluster::TrainsFor(const SimNode& node) const {
  const bool trains =
      std::any_of(node.workers.begin(), node.workers.end(), [](const auto& w) { return w.second->alive; });
  return trains ? node.cluster : Incarnation();
}

void Cluster::TearWorker(Rank rank) {
  ForHolders(rank, [](Worker& worker) { worker.tear_next = true; });
}

void Cluster::StopWorker(Rank rank) {
  ForHolders(rank, [](Worker& worker) { worker.stop_next = true; });
}

void Cluster::HangWorker(Rank rank) {
  ForHolders(rank, [](Worker& worker) {
    ++worker.activity;
    worker.state.position = Position::kComputing;
  });
}

void Cluster::SleepWorker(Rank rank) {
  ForHolders(rank, [&](Worker& worker) {
    ++worker.activity;
    worker.asleep_since = std::min(worker.asleep_since, now_);
  });
}

void Cluster::DeafenWorker(Rank rank) {
  ForHolders(rank, [](Worker& worker) { worker.deaf = true; });
}

void Cluster::DeafenProgram() {
  all_deaf_ = true;
  for (const auto& worker : all_workers_) worker->deaf = true;
}

void Cluster::BreakWorker(Rank rank) {
  ForHolders(rank, [](Worker& worker) { worker.break_next = true; });
}

void Cluster::SpoilWorker(Rank rank) {
  ForHolders(rank, [](Worker& worker) { worker.value ^= 1; });
}

void Cluster::SendReport(SimNode& node) {
  if (!node.agent || node.stream == 0 || !node.welcomed || node.cut) return;
  NodeReport report;
  report.term = node.term;
  report.order = node.order.sequence;
  node.reported_at = now_;
  node.reported_waiting = false;
  report.leaving = node.leaving;
  std::vector<WorkerReady> ready;
  for (const auto& [slot, worker] : node.workers) {
    WorkerReport r;
    r.slot = slot;
    r.worker = worker->id;
    r.pid = 1;
    r.exit = worker->exit;
    r.life = !worker->alive ? WorkerLife::kExited : worker->ready ? WorkerLife::kReady : WorkerLife::kStarting;
    r.stuck = worker->stuck;
    r.waits = Waits(*worker);
    r.mute = worker->asleep_since != kNever && now_ >= worker->asleep_since + spec_.timeouts.freeze;
    node.reported_waiting |= r.waits;
    if (r.stuck) r.life = WorkerLife::kReady;
    r.state = worker->state;
    r.state.rank = worker->rank;
    report.workers.push_back(r);
    if (worker->ready) {
      JoinInfo info;
      info.protocol = kProtocolVersion;
      info.library = kVersion;
      info.shards = {{"state", 8, "all"}};
      info.total_steps = options_.steps;
      info.data_address = ToHex(worker->id.value);
      ready.push_back({node.stream, slot, worker->id, info});
    }
  }
  After(kStreamHop, [this, &node, stream = node.stream, report, ready] {
    if (node.cut || node.stream != stream) return;
    for (const WorkerReady& r : ready) Deliver(r);
    Deliver(NodeReported{stream, report});
  });
}

void Cluster::TakeOrder(SimNode& node, const NodeOrder& order) {
  if (order.term < node.term) return;
  node.term = order.term;
  node.order = order;
  if (order.shutdown) {
    for (auto& [slot, worker] : node.workers) {
      if (worker->alive) EndWorker(*worker, {0, 15, true, "stopped", ""});
    }
    node.up = node.agent = false;
    ++node.epoch;
    DropStream(node, true);
    return;
  }
  for (const WorkerOrder& o : order.workers) {
    auto& worker = node.workers[o.slot];
    if (worker && worker->id == o.retire && !worker->stuck) {
      if (worker->alive) EndWorker(*worker, {0, 15, true, "stopped", ""});
      worker.reset();
    }
    if (worker && worker->alive && !o.run) EndWorker(*worker, {0, 15, true, "not wanted", ""});
    if (!worker && o.run) StartWorker(node, o.slot);
    if (!worker) {
      node.workers.erase(o.slot);
      continue;
    }
    if (worker->id != o.worker || !worker->alive || worker->order == o) continue;
    worker->order = o;
    After(Delay(std::chrono::microseconds(50)), [this, w = worker] {
      if (w->alive && w->ready) Apply(w);
    });
  }
  SendReport(node);
}

}  // namespace locum::sim
