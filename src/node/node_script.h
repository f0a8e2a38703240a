// Test support: plays keeper, workers and coordinator to the decisions of one agent.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "node/node_core.h"

namespace locum::node {

// What a step led to is in `actions`, the newest report in `last`.
class NodeScript : public testing::Test {
 protected:
  void Do(const Event& event) {
    actions = core.Step(event, now);
    bool draw = false;
    std::vector<Incarnation> hung;
    for (const Action& action : actions) {
      if (const auto* wake = std::get_if<WakeAt>(&action)) wake_at = wake->when;
      if (const auto* report = std::get_if<SendReport>(&action)) last = report->report;
      if (std::holds_alternative<Draw>(action)) draw = true;
      if (const auto* save = std::get_if<SaveStacks>(&action)) hung.push_back(save->worker);
    }
    if (saves_stacks) {
      for (Incarnation worker : hung) Then(StacksSaved{worker});
    }
    if (!draw) return;
    Drawn drawn;
    for (int i = 0; i < 8; ++i) drawn.fresh.push_back(Incarnation(next_random++));
    Then(drawn);
  }
  // Its actions beside those there already.
  void Then(const Event& event) {
    std::vector<Action> before = std::exchange(actions, {});
    Do(event);
    actions.insert(actions.begin(), before.begin(), before.end());
  }
  // In steps as an agent makes them; of what they led to only the last one's is kept.
  void Pass(Duration d) {
    for (; d > kOwnPause; d -= kOwnPause) Stand(kOwnPause);
    Stand(d);
  }
  // Nothing ran in between.
  void Stand(Duration d) {
    now = now + d;
    Do(Tick{});
  }
  template <class A>
  int Count() const {
    return static_cast<int>(
        std::count_if(actions.begin(), actions.end(), [](const Action& a) { return std::holds_alternative<A>(a); }));
  }
  template <class A>
  const A& Get() const {
    static const A nothing{};
    for (const Action& action : actions) {
      if (const A* found = std::get_if<A>(&action)) return *found;
    }
    ADD_FAILURE() << "no such action";
    return nothing;
  }

  Welcome MakeWelcome() const {
    Welcome welcome;
    welcome.term = Term(3);
    welcome.job = "job";
    welcome.cluster = Incarnation(99);
    welcome.command = {"trainer"};
    welcome.grace = std::chrono::seconds(5);
    welcome.heartbeat = std::chrono::milliseconds(100);
    welcome.freeze_deadline = std::chrono::seconds(5);
    welcome.collective_deadline = std::chrono::seconds(10);
    welcome.park_deadline = std::chrono::seconds(120);
    return welcome;
  }
  void Hello(std::vector<Incarnation> workers = {}, Notes notes = {}) {
    KeeperHello hello;
    hello.keeper = Incarnation(7);
    hello.keeper_pid = 42;
    hello.agent_starts = 1;
    hello.workers = std::move(workers);
    Do(KeeperThere{hello, notes});
  }
  void Up() {
    Hello();
    Do(CoordinatorUp{MakeWelcome()});
  }
  void Order(std::vector<WorkerOrder> workers) {
    NodeOrder order;
    order.term = Term(3);
    order.sequence = ++sequence;
    order.workers = std::move(workers);
    Do(Ordered{order});
  }
  static WorkerRecord Record(Incarnation id, bool joined) {
    WorkerRecord record;
    record.slot = Slot(0);
    record.worker = id;
    record.pid = 500;
    record.joined = joined;
    record.log = "/dir/worker.log";
    return record;
  }
  void EndOf(Incarnation id) {
    WorkerRecord record = Record(id, false);
    record.ended = true;
    record.exit.what = "exit status 3";
    record.exit.status = 3;
    Do(WorkerSeen{record});
  }
  // A worker in slot 0 that has joined and registered.
  Incarnation ReadyWorker() {
    Up();
    Order({WorkerOrder{}});
    Incarnation id = Get<StartWorker>().worker;
    Do(WorkerSeen{Record(id, false)});
    Do(WorkerSeen{Record(id, true)});
    Do(WorkerIsReady{id, JoinInfo{}});
    Do(WorkerSaid{id, WorkerState{}});
    return id;
  }
  static WorkerOrder To(Incarnation id, Mode mode, uint64_t generation) {
    WorkerOrder order;
    order.worker = id;
    order.mode = mode;
    order.generation = Generation(generation);
    order.expendable = true;
    return order;
  }
  void Page(Incarnation id, Word word, Position position) {
    PageReading page;
    page.worker = id;
    page.word = word;
    page.position = position;
    Do(PagesRead{{page}});
  }
  void Answer(Incarnation id, uint64_t frozen, uint64_t parked) {
    WorkerState state;
    state.frozen = Generation(frozen);
    state.parked = Generation(parked);
    Do(WorkerSaid{id, state});
  }

  Time now{1'000'000'000'000};
  Time wake_at = kNever;
  uint64_t next_random = 1000;
  uint64_t sequence = 0;
  bool saves_stacks = true;  // at once
  NodeCore core{Identity{"node-a", "10.0.0.1", "/dir", Incarnation(8), 43}};
  std::vector<Action> actions;
  NodeReport last;
};

inline constexpr Word kRunning{Generation(1), locum::Step(9), WordState::kOpen};

}  // namespace locum::node
