// Nodes that a coordinator may have: they obey what they are told, well enough for a job to start, run, and recover.
// Everything they say and are told passes through the wire's bytes.
#pragma once

#include <map>
#include <string>

#include "adapters/grpc/convert.h"
#include "base/check.h"

namespace fuzz {

struct Puppet {
  locum::NodeHello hello;
  locum::StreamId stream = 0;  // 0: not connected
  locum::NodeReport report;
  locum::NodeOrder order;
  locum::Incarnation next;  // of its next worker

  locum::WorkerReport* At(locum::Slot slot) {
    for (locum::WorkerReport& worker : report.workers) {
      if (worker.slot == slot) return &worker;
    }
    return nullptr;
  }
};

inline locum::JoinInfo PuppetInfo() {
  return {locum::kProtocolVersion, locum::kVersion, "isa=x\nblas=y\n", {{"w", 10, "all"}}, 7, 0, "127.0.0.1:9"};
}

inline void StartWorker(Puppet* node, locum::Slot slot) {
  node->next = node->next.Next();
  locum::WorkerReport worker;
  worker.slot = slot;
  worker.worker = node->next;
  worker.pid = 100;
  worker.life = locum::WorkerLife::kReady;
  worker.joined = true;
  worker.log = "/d/worker.log";
  if (locum::WorkerReport* old = node->At(slot)) {
    *old = worker;
  } else {
    node->report.workers.push_back(worker);
  }
}

inline void EndWorker(locum::WorkerReport* worker, int32_t status, int32_t signal, bool stopped) {
  worker->life = locum::WorkerLife::kExited;
  worker->exit = locum::WorkerExit{status, signal, stopped, "ended", "its last line\n"};
}

// One step of a trainer that runs as ordered.
inline void Train(locum::WorkerState* s, const locum::WorkerOrder& o) {
  using namespace locum;  // NOLINT
  s->stop_at = o.stop_at;
  const bool resumes = s->word.state == WordState::kFrozen && o.generation >= s->frozen;
  if (resumes) {
    s->word = {o.generation, s->word.step, WordState::kOpen};
    s->starting = s->word.step;
    s->position = Position::kInCollective;
    s->connected = o.generation;
    s->connected_ns = 5;
    return;
  }
  if (s->word.generation != o.generation || s->word.state != WordState::kOpen) return;
  if (s->word.step >= o.stop_at) {
    s->position = Position::kParked;
    return;
  }
  if (s->word.step.value >= kMaxStep) return;
  s->word.step = s->starting = s->word.step.Next();
  s->position = Position::kInCollective;
  s->first_commit = o.generation;
  s->first_commit_ns = 6;
}

inline void Obey(locum::WorkerReport* worker, const locum::WorkerOrder& o) {
  using namespace locum;  // NOLINT
  WorkerState& s = worker->state;
  if (o.echo_nonce != 0) s.echo = {o.echo_nonce, true, 1, 1, ""};
  const bool recovery = o.mode == Mode::kFreeze || o.mode == Mode::kRecover;
  if (recovery && o.generation > s.frozen) {
    s.frozen = s.parked = o.generation;
    if (s.word.state != WordState::kTorn) s.word.state = WordState::kFrozen;
    s.holding = {s.word.state == WordState::kFrozen, s.word.generation, s.word.step};
    s.position = Position::kParked;
  }
  if (o.mode == Mode::kRecover) {
    s.rank = o.rank;
    s.word = {o.generation, o.recovery_step, WordState::kFrozen};
    s.verified = {o.generation,  o.recovery_step, o.recovery_step.value * 3 + 1, o.pull ? 10u : 0u, 1, 2, 0,
                  worker->worker};
  }
  if (o.mode == Mode::kRun) Train(&s, o);
  if (o.mode == Mode::kFinish) EndWorker(worker, 0, 0, false);
}

// Everything of the newest order; true when it started a worker, which is to be told as ready.
inline bool Obey(Puppet* node) {
  bool started = false;
  for (const locum::WorkerOrder& o : node->order.workers) {
    locum::WorkerReport* worker = node->At(o.slot);
    if (!worker || (o.retire == worker->worker && o.retire != locum::Incarnation())) {
      if (o.run) {
        StartWorker(node, o.slot);
        started = true;
      } else if (worker && worker->life != locum::WorkerLife::kExited) {
        EndWorker(worker, 0, 15, true);
      }
    } else if (o.worker == worker->worker && worker->life == locum::WorkerLife::kReady) {
      Obey(worker, o);
    }
  }
  return started;
}

}  // namespace fuzz
