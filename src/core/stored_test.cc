#include <gtest/gtest.h>

#include "core/coordinator.h"

namespace locum {
namespace {

PersistentState Running() {
  PersistentState s;
  s.spec.job = "j";
  s.spec.nodes = 2;
  s.term = Term(1);
  s.phase = JobPhase::kRunning;
  s.generation = Generation(2);
  s.nodes = {{"a", NodeState::kHealthy, Role::kActive, Incarnation(1), ""},
             {"b", NodeState::kHealthy, Role::kActive, Incarnation(2), ""}};
  s.ranks = {{Rank(0), "a", "a", Slot(0), Incarnation(3)}, {Rank(1), "b", "b", Slot(0), Incarnation(4)}};
  s.history = {{Generation(1), Step(0)}, {Generation(2), Step(5)}};
  return s;
}

// What is wrong with it after `change`; empty: nothing.
template <class F>
std::string Wrong(F change) {
  PersistentState s = Running();
  change(s);
  return CheckStored(s).message();
}

TEST(Stored, WhatACoreWrites_IsTaken) {
  EXPECT_EQ(Wrong([](PersistentState&) {}), "");
  EXPECT_EQ(CheckStored(PersistentState{}).message(), "");
  EXPECT_EQ(Wrong([](PersistentState& s) {
              s.phase = JobPhase::kFreezing;
              s.ranks[1].node.clear();
              s.ranks[1].worker = Incarnation();
              s.leaving = {{Rank(1), "b", "b", Slot(0), Incarnation(4)}};
            }),
            "");
}

TEST(Stored, RanksThatMakeNoSense_AreRefused) {
  EXPECT_EQ(Wrong([](PersistentState& s) { s.ranks.pop_back(); }), "there are 1 ranks instead of 2");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.ranks[1].rank = Rank(0); }), "rank 0 is not where it belongs");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.ranks[1].rank = Rank(9); }), "rank 9 is beyond the job's ranks");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.ranks[1].node = "c"; }), "rank 1 is on a node that is not known");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.ranks[1].node = ""; }), "rank 1 has a worker and no node");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.ranks[1].worker = Incarnation(); }), "rank 1 has no worker");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.ranks[0].slot = Slot(1); }), "rank 0 is in a slot that there is not");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.leaving = {{Rank(0), "", "a"}}; }), "rank 0 was left by nobody");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.phase = JobPhase::kGathering; }), "a job that has not begun has ranks");
}

TEST(Stored, CountsThatLeaveNoRoom_AreRefused) {
  EXPECT_EQ(Wrong([](PersistentState& s) { s.spec.nodes = 0; }), "the job has no workers");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.spec.workers_per_node = 0; }), "the job has no workers");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.spec.nodes = s.spec.workers_per_node = 1u << 16; }),
            "the job has more than 65536 ranks");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.term = Term(kMaxTerm + 1); }), "the term is out of range");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.spec.timeouts.freeze = Duration::max(); }), "a time-out is out of range");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.spec.timeouts.heartbeat = Duration(0); }), "a time-out is out of range");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.spec.limits.window = Duration(-1); }),
            "the limits' window is out of range");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.spec.limits.recoveries = 0; }), "the limits allow no recovery");
}

TEST(Stored, NodesAndHistoryOutOfOrder_AreRefused) {
  EXPECT_EQ(Wrong([](PersistentState& s) { s.nodes[1].name = "a"; }), "node 'a' is there twice");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.nodes[1].name = ""; }), "a node has no name");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.history[0].generation = Generation(2); }),
            "the history of generations is not in order");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.history.pop_back(); }), "the generation that runs is not in the history");
  EXPECT_EQ(Wrong([](PersistentState& s) { s.generation = Generation(kMaxGeneration + 1); }),
            "the generation is out of range");
}

}  // namespace
}  // namespace locum
