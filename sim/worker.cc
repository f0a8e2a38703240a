// The workers of the simulator: a model of the worker library and of a trainer that keeps its contract.
#include <algorithm>

#include "sim/cluster.h"

namespace locum::sim {

namespace {

constexpr Duration Us(int64_t us) { return std::chrono::microseconds(us); }
constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }

}  // namespace

void Cluster::StartWorker(SimNode& node, Slot slot) {
  auto worker = std::make_shared<Worker>();
  worker->id = Incarnation(random_.Next());
  worker->node = &node;
  worker->slot = slot;
  worker->value = ValueOf(0);
  worker->deaf = all_deaf_;
  node.workers[slot] = worker;
  all_workers_.push_back(worker);
  After(Delay(options_.start), [this, worker] {
    if (!worker->alive) return;
    worker->ready = true;
    worker->state.position = Position::kParked;
    SendReport(*worker->node);
    if (worker->order.worker == worker->id) Apply(worker);
  });
}

void Cluster::EndWorker(Worker& worker, WorkerExit exit) {
  worker.alive = false;
  ++worker.activity;
  worker.exit = std::move(exit);
  if (!worker.node->Unreached()) BreakPeers(worker);
  SimNode* node = worker.node;
  After(Us(200), [this, node] { SendReport(*node); });
}

// Its connections are reset: whoever is in a collective with it learns of it soon, each at a time of its own.
void Cluster::BreakPeers(const Worker& dead) {
  const Generation generation = dead.state.word.generation;
  for (const auto& worker : all_workers_) {
    if (!worker->alive || worker->id == dead.id || worker->state.word.generation != generation) continue;
    if (worker->node->Unreached() || dead.rank == kNoRank) continue;
    After(Delay(Us(500)), [this, w = worker, generation] {
      if (!w->alive || w->state.word.generation != generation || w->state.position != Position::kInCollective) return;
      Break(w, "connection reset by peer");
    });
  }
}

void Cluster::Apply(const std::shared_ptr<Worker>& w) {
  if (w->asleep_since != kNever) {
    if (w->order.mode != Mode::kFreeze && w->order.mode != Mode::kRecover) return;
    After(spec_.timeouts.freeze, [this, w, g = w->order.generation] {
      if (!w->alive || w->stuck || w->state.frozen >= g || w->order.generation != g) return;
      EndWorker(*w, {0, 9, true, "killed by SIGKILL (did not answer the freeze)", ""});
    });
    return;
  }
  const WorkerOrder& o = w->order;
  if (o.echo_nonce != 0 && w->state.echo.nonce != o.echo_nonce) {
    After(Delay(Ms(5)), [this, w, nonce = o.echo_nonce, id = o.echo_peer.worker] {
      if (!w->alive) return;
      const auto peer = Find(id);
      const bool answers = peer && peer->alive && !peer->node->Unreached() && !w->node->Unreached();
      w->state.echo = {nonce, answers, 1 << 20, 1000, answers ? "" : "no answer"};
      SendReport(*w->node);
    });
  }
  switch (o.mode) {
    case Mode::kIdle: break;
    case Mode::kFreeze:
      if (o.generation > w->state.frozen) Freeze(w);
      break;
    case Mode::kRecover:
      if (o.generation > w->state.frozen) Freeze(w);
      Recover(w);
      break;
    case Mode::kRun: Run(w); break;
    case Mode::kFinish:
      if (w->state.done) {
        w->state.position = Position::kParked;
        After(Delay(Ms(5)), [this, w] {
          if (w->alive) EndWorker(*w, {0, 0, false, "exit status 0", ""});
        });
      }
      break;
  }
}

void Cluster::Freeze(const std::shared_ptr<Worker>& w) {
  WorkerState& s = w->state;
  if (s.word.state == WordState::kUpdating) {
    After(Us(300), [this, w] {
      if (w->alive && w->order.generation > w->state.frozen) Freeze(w);
    });
    return;
  }
  if (s.word.state == WordState::kOpen) s.word.state = WordState::kFrozen;
  s.frozen = w->order.generation;
  s.holding = {s.word.state == WordState::kFrozen && !w->pulling, s.word.generation, s.word.step};
  w->pulling = false;
  if (s.position == Position::kParked) {
    s.parked = s.frozen;
  } else {
    // Computing goes on to its end and is then refused; a collective is broken off by the program's abort.
    if (w->unparked_since == kNever) {
      w->unparked_since = now_;
      WatchLateness(w);
    }
    // Its group's connections are shut down, whatever its trainer makes of that.
    if (w->deaf && s.position == Position::kInCollective) ++w->activity;
    After(Delay(s.position == Position::kInCollective ? Ms(1) : options_.compute / 2),
          [this, w, g = s.frozen, a = w->activity] {
            const bool deaf = w->deaf && w->state.position == Position::kInCollective;
            if (w->alive && w->state.frozen == g && w->activity == a && !deaf) Park(w);
          });
  }
  SendReport(*w->node);
}

// Its node ends a worker that does not come out of its collective, once another holds its state.
void Cluster::WatchLateness(const std::shared_ptr<Worker>& w) {
  After(Ms(100), [this, w, since = w->unparked_since] {
    if (!w->alive || w->unparked_since != since || w->stuck) return;
    if (!w->node->agent || now_ < since + spec_.timeouts.collective || !w->order.expendable) return WatchLateness(w);
    EndWorker(*w, {0, 9, true, "killed by SIGKILL (was still in its collective)", ""});
  });
}

void Cluster::Park(const std::shared_ptr<Worker>& w) {
  w->unparked_since = kNever;
  ++w->activity;
  w->state.position = Position::kParked;
  w->state.parked = w->state.frozen;
  SendReport(*w->node);
  if (w->order.mode == Mode::kRecover) Recover(w);
  if (w->order.mode == Mode::kRun) Run(w);
}

void Cluster::Break(const std::shared_ptr<Worker>& w, const std::string& why) {
  if (w->asleep_since != kNever) return;
  if (w->deaf) {
    // The library has seen it, the trainer has not.
    w->state.broken = w->state.word.generation;
    w->state.broken_why = why;
    return SendReport(*w->node);
  }
  w->unparked_since = kNever;
  ++w->activity;
  WorkerState& s = w->state;
  s.broken = s.word.generation;
  s.broken_step = s.word.step;
  s.broken_why = why;
  s.position = Position::kParked;
  s.parked = s.frozen;
  if (s.word.state == WordState::kOpen) s.word.state = WordState::kFrozen;
  SendReport(*w->node);
}

void Cluster::Recover(const std::shared_ptr<Worker>& w) {
  const WorkerOrder o = w->order;
  WorkerState& s = w->state;
  if (s.verified.generation == o.generation || s.frozen != o.generation) return;
  const auto verified = [this, w, o](uint64_t bytes) {
    WorkerState& state = w->state;
    if (state.verified.generation == o.generation) return;
    state.word = {o.generation, o.recovery_step, WordState::kFrozen};
    state.verified = {o.generation, o.recovery_step, w->value, bytes, now_.ns - 1000, now_.ns, 0, Incarnation()};
    w->rank = o.rank;
    w->pulling = false;
    SendReport(*w->node);
  };
  if (!o.pull) {
    After(Delay(Ms(2)), [w, o, verified] {
      if (w->alive && w->order.generation == o.generation && w->state.frozen == o.generation) verified(0);
    });
    return;
  }
  if (s.position != Position::kParked) return;  // Park comes back here
  if (w->pulling) return;
  if (!o.staged) w->pulling = true;
  // Chunks from one source after another, until one has given all.
  After(Delay(Ms(10)), [this, w, o, verified] {
    if (!w->alive || w->order.generation != o.generation || w->state.frozen != o.generation) return;
    for (const Peer& source : o.sources) {
      const auto from = Find(source.worker);
      if (!from || !from->alive || from->node->Unreached() || w->node->Unreached()) continue;
      const Word word = from->state.word;
      if (word.state != WordState::kFrozen || word.step != o.recovery_step || from->pulling) continue;
      w->value = from->value;
      verified(8);
      return;
    }
    w->state.cannot_pull = o.generation;
    w->state.pull_error = "no source answers";
    SendReport(*w->node);
  });
}

void Cluster::Run(const std::shared_ptr<Worker>& w) {
  const WorkerOrder& o = w->order;
  WorkerState& s = w->state;
  s.stop_at = o.stop_at;
  w->peers = o.peers;
  if (s.word.generation == o.generation && s.word.state == WordState::kFrozen &&
      s.verified.generation == o.generation && s.broken < o.generation && s.position == Position::kParked) {
    if (w->value != ValueOf(s.word.step.value))
      Violation("generation " + std::to_string(o.generation.value) + " runs on a state that no undisturbed run has");
    newest_running_ = std::max(newest_running_, o.generation);
    s.word.state = WordState::kOpen;
    After(Delay(Ms(15)), [this, w, g = o.generation] {
      if (!w->alive || w->state.word.generation != g || w->state.word.state != WordState::kOpen) return;
      if (w->state.connected == g) return;
      w->state.connected = g;
      w->state.connected_ns = now_.ns;
      BeginStep(w);
    });
    SendReport(*w->node);
  } else if (s.position == Position::kParked && s.word.state == WordState::kOpen && s.word.generation == o.generation &&
             s.connected == o.generation) {
    BeginStep(w);  // a planned stop was lifted
  } else {
    SendReport(*w->node);
  }
}

// NextStep.
void Cluster::BeginStep(const std::shared_ptr<Worker>& w) {
  WorkerState& s = w->state;
  if (s.word.step.value >= options_.steps || w->stop_next) {
    s.done = true;
    s.position = Position::kParked;
    SendReport(*w->node);
    return;
  }
  s.starting = s.word.step;
  if (s.starting >= s.stop_at) {
    s.position = Position::kParked;
    SendReport(*w->node);
    return;
  }
  w->group = s.word.generation;
  s.position = Position::kComputing;
  if (w->rank == failing_rank_ && s.word.step.value == failing_step_) {
    EndWorker(*w, {3, 0, false, "exit status 3", ""});
    return;
  }
  After(Delay(options_.compute), [this, w, a = ++w->activity] {
    if (w->alive && w->activity == a) EnterCollective(w);
  });
}

void Cluster::EnterCollective(const std::shared_ptr<Worker>& w) {
  WorkerState& s = w->state;
  s.position = Position::kInCollective;
  w->collective_since = now_;
  if (w->group != s.word.generation || s.word.state != WordState::kOpen) {
    // The group it computed for is gone: its connections are closed, the collective fails, NextStep follows.
    if (w->deaf) return;
    After(Delay(Us(500)), [this, w, a = w->activity] {
      if (w->alive && w->activity == a) Park(w);
    });
    return;
  }
  if (std::exchange(w->break_next, false)) {
    After(Delay(Us(500)), [this, w, a = w->activity] {
      if (w->alive && w->activity == a) Break(w, "connection reset by peer");
    });
    return;
  }
  Collective& c = collectives_[{s.word.generation, s.word.step.value}];
  c.entered[w->id] = {w, w->activity};
  c.peers = w->peers;
  BreakIfPeerDead(w);
  TryComplete(s.word.generation, c);
}

// A dead peer resets the connection; an unreachable one says nothing.
void Cluster::BreakIfPeerDead(const std::shared_ptr<Worker>& w) {
  if (!w->alive || w->state.position != Position::kInCollective || w->node->Unreached()) return;
  for (const Peer& peer : w->peers) {
    const auto other = Find(peer.worker);
    if (!other || other->alive || other->node->Unreached()) continue;
    After(Delay(Us(500)), [this, w, activity = w->activity] {
      if (w->alive && w->activity == activity) Break(w, "connection reset by peer");
    });
    return;
  }
}

void Cluster::TryComplete(Generation generation, Collective& c) {
  if (c.complete || c.entered.size() < c.peers.size()) return;
  for (const auto& [id, member] : c.entered) {
    // What a cut link holds back arrives when it is healed.
    if (member.first->node->Unreached() || !member.first->alive || member.first->activity != member.second) return;
  }
  c.complete = true;
  if (generation < newest_running_)
    Violation("a collective of generation " + std::to_string(generation.value) + " completed while a later one runs");
  for (const auto& [id, member] : c.entered) {
    After(Delay(Us(400)), [this, w = member.first, a = member.second] { CollectiveDone(w, a); });
  }
}

void Cluster::CollectiveDone(const std::shared_ptr<Worker>& w, uint64_t activity) {
  WorkerState& s = w->state;
  if (!w->alive || w->activity != activity || s.position != Position::kInCollective) return;
  // Commit fails on a frozen state, and on one of another generation than the trainer computed for.
  if (s.word.state != WordState::kOpen || w->group != s.word.generation) {
    Park(w);
    return;
  }
  s.word.state = WordState::kUpdating;
  After(Delay(options_.update), [this, w] {
    if (!w->alive) return;
    WorkerState& state = w->state;
    if (w->tear_next) {
      state.word.state = WordState::kTorn;
      w->value ^= 0x55;
      state.position = Position::kParked;
      ++w->activity;
      SendReport(*w->node);
      return;
    }
    w->value = Mix64(w->value + state.word.step.value + 1);
    state.word.step = state.word.step.Next();
    state.word.state = WordState::kOpen;
    CheckCommit(*w);
    const bool first = state.first_commit != state.word.generation;
    if (first) {
      state.first_commit = state.word.generation;
      state.first_commit_ns = now_.ns;
    }
    BeginStep(w);
    if (first) SendReport(*w->node);
  });
}

void Cluster::CheckCommit(const Worker& w) {
  const uint64_t made = w.state.word.step.value;
  if (w.value != ValueOf(made)) {
    Violation("rank " + std::to_string(w.rank.value) + " committed a state " + std::to_string(made) +
              " that no undisturbed run has");
  }
  auto& ranks = committed_[made];
  ranks[w.rank] = w.state.word.generation;
  const uint32_t world = spec_.nodes * spec_.workers_per_node;
  if (ranks.size() == world && made > fully_committed_) fully_committed_ = made;
  if (made <= fully_committed_ && made + 1 < fully_committed_) {
    Violation("step " + std::to_string(made) + " was made again after every rank had committed " +
              std::to_string(fully_committed_));
  }
}

}  // namespace locum::sim
