#include "runtime/coordinator_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace locum {
namespace {

using ::testing::ElementsAre;

Time Now() {
  return Time{std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

// Answers each event with what the test put down for it, and writes down what it was told.
struct Script {
  std::vector<std::string> told;
  std::vector<std::string> done;
  std::function<std::vector<Action>(const Event&, Time)> answer = [](const Event&, Time) {
    return std::vector<Action>{};
  };
  Status persist;

  CoordinatorCore Core() {
    return {[this](const Event& event, Time now) {
              if (std::get_if<Tick>(&event)) told.push_back("tick");
              if (auto* e = std::get_if<NodeLost>(&event)) told.push_back("lost " + std::to_string(e->stream));
              if (auto* e = std::get_if<StopRequested>(&event)) told.push_back("stop " + e->reason);
              if (std::get_if<Paused>(&event)) told.push_back("paused");
              return answer(event, now);
            },
            [] {
              ClusterView view;
              view.step = Step(7);
              return view;
            }};
  }
  CoordinatorPorts Ports() {
    CoordinatorPorts ports;
    ports.persist = [this](const PersistentState&) {
      done.push_back("persist");
      return persist;
    };
    ports.welcome = [this](const SendWelcome&) { done.push_back("welcome"); };
    ports.refuse = [this](const RefuseNode&) { done.push_back("refuse"); };
    ports.order = [this](const SendOrder&) { done.push_back("order"); };
    ports.note = [this](const Note& note, Time) { done.push_back("note " + note.name); };
    ports.answer = [this](const Answer&) { done.push_back("answer"); };
    return ports;
  }
};

Persist SomeState() { return {std::make_shared<PersistentState>()}; }

TEST(CoordinatorLoop, Actions_AreExecutedInTheirOrderUntilTheEnd) {
  Script script;
  script.answer = [&](const Event&, Time) {
    Note note;
    note.name = "generation_started";
    return std::vector<Action>{SomeState(), SendOrder{1, {}}, note, Answer{1, {}}, EndJob{3, "done"}, SendOrder{2, {}}};
  };
  CoordinatorLoop loop(script.Core(), script.Ports(), Now);
  auto outcome = loop.Run();
  EXPECT_EQ(outcome.end, CoordinatorLoop::End::kJobEnded);
  EXPECT_EQ(outcome.exit_status, 3);
  EXPECT_THAT(script.done, ElementsAre("persist", "order", "note generation_started", "answer", "order"));
}

Note Named(const std::string& name) {
  Note note;
  note.name = name;
  return note;
}

// A clock that the test moves, so that a retry is due when the test says so.
struct StoreFails : ::testing::Test {
  StoreFails() {
    script.persist = Internal("disk full");
    script.answer = [this](const Event& event, Time) -> std::vector<Action> {
      ++steps;
      if (const auto* changed = std::get_if<StoreChanged>(&event)) {
        script.told.push_back("store '" + changed->error + "'" + (changed->waits ? " waits" : ""));
        return {Named("alarm")};
      }
      return next ? next(event) : std::vector<Action>{};
    };
    ports = script.Ports();
    ports.persist = [this](const PersistentState& state) {
      script.done.push_back("persist " + std::to_string(state.generation.value));
      return script.persist;
    };
    ports.order = [this](const SendOrder& o) { script.done.push_back("order " + std::to_string(o.stream)); };
    ports.idle = [this] {
      if (at_idle) at_idle();
      return Time{now_ns} + kBeat;
    };
  }
  CoordinatorLoop& Loop() {
    loop.emplace(script.Core(), ports, [this] { return Time{now_ns}; });
    return *loop;
  }
  static Persist State(uint64_t generation) {
    PersistentState state;
    state.generation = Generation(generation);
    return {std::make_shared<const PersistentState>(state)};
  }
  void Pass(Duration time) { now_ns += time.count(); }

  Script script;
  CoordinatorPorts ports;
  std::function<std::vector<Action>(const Event&)> next;
  std::function<void()> at_idle;
  std::optional<CoordinatorLoop> loop;
  int64_t now_ns = 1;
  int steps = 0, idles = 0;
};

TEST_F(StoreFails, WhatFollows_WaitsAndIsDoneInOrderOnceItWorks) {
  next = [&](const Event& event) -> std::vector<Action> {
    if (std::get_if<Tick>(&event) && steps == 1) {
      return {State(1), SendOrder{1, {}}, Named("generation_started"), Answer{1, {}}, WakeAt{Time{2}}};
    }
    if (const auto* lost = std::get_if<NodeLost>(&event); lost && lost->stream == 9) {
      return {State(2), SendOrder{2, {}}, SendOrder{1, {}}, Named("later")};
    }
    return {};
  };
  at_idle = [&] {
    switch (++idles) {
      case 1: loop->Post(NodeLost{9, ""}, nullptr); break;
      case 2: Pass(kLongestGap); break;
      case 5: script.done.push_back("-- room"), script.persist = OkStatus(), Pass(kStoreRetry); break;
      case 8: loop->Stop("enough"); break;
      default: break;
    }
  };
  EXPECT_EQ(Loop().Run().end, CoordinatorLoop::End::kStopped);
  EXPECT_THAT(script.done, ElementsAre("persist 1", "note alarm", "-- room", "persist 2", "note generation_started",
                                       "answer", "order 2", "order 1", "note later", "note alarm"));
  EXPECT_THAT(script.told, ::testing::IsSupersetOf({"store 'disk full' waits", "store ''"}));
}

TEST_F(StoreFails, Retries_AreASecondApartAndTheErrorIsToldOnce) {
  next = [&](const Event& event) -> std::vector<Action> {
    if (std::get_if<Tick>(&event) && steps == 1) return {State(1)};
    return {};
  };
  at_idle = [&] {
    if (++idles == 12) loop->Stop("enough");
    Pass(kStoreRetry / 4);
  };
  Loop().Run();
  EXPECT_EQ(std::count(script.told.begin(), script.told.end(), "store 'disk full' waits"), 1);
  const auto tries = std::count(script.done.begin(), script.done.end(), "persist 1");
  EXPECT_GE(tries, 3);
  EXPECT_LE(tries, 4);
}

TEST_F(StoreFails, Views_AreAnsweredAndStopEndsTheLoop) {
  next = [&](const Event& event) -> std::vector<Action> {
    if (std::get_if<Tick>(&event) && steps == 1) return {State(1), EndJob{0, "finished"}};
    return {};
  };
  bool seen = false;
  at_idle = [&] {
    if (++idles == 1) loop->View([&](const ClusterView* view) { seen = view != nullptr && view->step == Step(7); });
    if (idles == 3) loop->Stop("SIGTERM");
  };
  const auto outcome = Loop().Run();
  EXPECT_EQ(outcome.end, CoordinatorLoop::End::kStopped);  // the job's end was never on record
  EXPECT_TRUE(seen);
}

TEST_F(StoreFails, OnlyOtherFiles_TheCoreIsToldAndNothingWaits) {
  script.persist = OkStatus();
  next = [&](const Event& event) -> std::vector<Action> {
    if (std::get_if<Tick>(&event) && steps == 1) return {State(1)};
    return {};
  };
  at_idle = [&] {
    if (++idles == 1) loop->ReportRoom("status.json: no room");
    if (idles == 3) loop->ReportRoom("");
    if (idles == 5) loop->Stop("enough");
  };
  Loop().Run();
  EXPECT_THAT(script.told, ::testing::IsSupersetOf({"store 'status.json: no room'", "store ''"}));
}

TEST_F(StoreFails, StreamIsLost_WhatWasMeantForItIsNotSent) {
  next = [&](const Event& event) -> std::vector<Action> {
    if (std::get_if<Tick>(&event) && steps == 1) return {State(1), SendOrder{4, {}}, SendOrder{5, {}}};
    return {};
  };
  at_idle = [&] {
    if (++idles == 1) loop->Post(NodeLost{4, ""}, nullptr);
    if (idles == 3) script.persist = OkStatus(), Pass(kStoreRetry);
    if (idles == 6) loop->Stop("enough");
  };
  Loop().Run();
  EXPECT_THAT(script.done, ::testing::Contains("order 5"));
  EXPECT_THAT(script.done, ::testing::Not(::testing::Contains("order 4")));
}

TEST(CoordinatorLoop, QueuedInputs_AreToldBeforeADueTimer) {
  Script script;
  CoordinatorLoop* handle = nullptr;
  script.answer = [&](const Event& event, Time now) -> std::vector<Action> {
    if (script.told.size() == 1) {  // the first tick: two inputs arrive, and a timer is due at once
      EXPECT_TRUE(handle->Post(NodeLost{1, ""}, nullptr));
      EXPECT_TRUE(handle->Post(NodeLost{2, ""}, nullptr));
      return {WakeAt{now}};
    }
    if (std::get_if<Tick>(&event)) return {EndJob{0, ""}};
    return {};
  };
  CoordinatorLoop loop(script.Core(), script.Ports(), Now);
  handle = &loop;
  loop.Run();
  EXPECT_THAT(script.told, ElementsAre("tick", "lost 1", "lost 2", "tick"));
}

TEST(CoordinatorLoop, OwnPause_IsToldBeforeInputsAndTimers) {
  Script script;
  CoordinatorLoop* handle = nullptr;
  int64_t now_ns = 1;
  script.answer = [&](const Event& event, Time now) -> std::vector<Action> {
    if (script.told.size() == 1) {
      EXPECT_TRUE(handle->Post(NodeLost{1, ""}, nullptr));
      now_ns += std::chrono::nanoseconds(std::chrono::seconds(2)).count();  // the process was stopped
      return {WakeAt{now + Duration(1)}};
    }
    if (std::get_if<Tick>(&event)) return {EndJob{0, ""}};
    return {};
  };
  CoordinatorLoop loop(script.Core(), script.Ports(), [&] { return Time{now_ns}; });
  handle = &loop;
  loop.Run();
  EXPECT_THAT(script.told, ElementsAre("tick", "paused", "lost 1", "tick"));
}

TEST(CoordinatorLoop, LongWaitWhileNothingIsDue_IsNoPause) {
  Script script;
  CoordinatorLoop* handle = nullptr;
  int64_t now_ns = 1;
  int turns = 0;
  CoordinatorPorts ports = script.Ports();
  ports.idle = [&] {
    // What the loop is about to wait; then as much again, and a little more, than it may be late.
    now_ns += kCalmBeat.count();
    if (++turns == 3) now_ns += kLongestGap.count() + 1;
    if (turns == 3) {
      EXPECT_THAT(script.told, ElementsAre("tick"));
    }
    if (turns == 4) handle->Stop("enough");
    return kNever;
  };
  CoordinatorLoop loop(script.Core(), ports, [&] { return Time{now_ns}; });
  handle = &loop;
  loop.Run();
  EXPECT_THAT(script.told, ElementsAre("tick", "paused", "stop enough"));
}

TEST(CoordinatorLoop, Stop_TellsTheCoreThenEnds) {
  Script script;
  CoordinatorLoop loop(script.Core(), script.Ports(), Now);
  std::thread stopper([&] { loop.Stop("SIGTERM"); });
  auto outcome = loop.Run();
  stopper.join();
  EXPECT_EQ(outcome.end, CoordinatorLoop::End::kStopped);
  EXPECT_THAT(script.told, ElementsAre("tick", "stop SIGTERM"));
  EXPECT_FALSE(loop.Post(Tick{}, nullptr));
}

TEST(CoordinatorLoop, Views_AreAnsweredFromTheLoopAndWithNullAfterIt) {
  Script script;
  std::atomic<uint64_t> step{0};
  CoordinatorLoop loop(script.Core(), script.Ports(), Now);
  std::thread asker([&] {
    EXPECT_TRUE(loop.View([&](const ClusterView* view) {
      step = view == nullptr ? 0 : view->step.value;
      loop.Stop("enough");
    }));
  });
  loop.Run();
  asker.join();
  EXPECT_EQ(step, 7u);
  EXPECT_FALSE(loop.View([](const ClusterView*) {}));
}

TEST(CoordinatorLoop, FullQueue_RefusesWithoutCalling) {
  Script script;
  CoordinatorLoop loop(script.Core(), script.Ports(), Now);
  int taken = 0;
  for (size_t i = 0; i < kMaxQueuedEvents; ++i) ASSERT_TRUE(loop.Post(NodeLost{1, ""}, [&] { ++taken; }));
  EXPECT_FALSE(loop.Post(NodeLost{1, ""}, [&] { ++taken; }));
  loop.Stop("enough");
  loop.Run();
  EXPECT_EQ(taken, static_cast<int>(kMaxQueuedEvents));
}

}  // namespace
}  // namespace locum
