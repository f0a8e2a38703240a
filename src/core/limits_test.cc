// What grows without end somewhere else ends here with a reason.
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

NodeHello Hello(const std::string& name) {
  return {name, kProtocolVersion, kVersion, "", Incarnation(), "::1", Incarnation(1), Incarnation(2)};
}

TEST(Coordinator, LastGenerationThatCanBeNumbered_EndsTheJob) {
  PersistentState stored = Running();
  stored.phase = JobPhase::kFreezing;
  stored.generation = Generation(kMaxGeneration);
  Coordinator core(stored.spec, Term(2), stored.cluster, stored);
  core.Step(Tick{}, Time{1});
  core.Step(Tick{}, Time{1} + 2 * stored.spec.timeouts.adopt);
  EXPECT_EQ(core.View().phase, JobPhase::kFailed);
  EXPECT_NE(core.View().reason.find("as many as can be numbered"), std::string::npos) << core.View().reason;
}

TEST(Coordinator, MoreNodesThanItCanKnow_AreRefused) {
  PersistentState stored = Running();
  for (int i = 2; i < kMaxNodes; ++i) stored.nodes.push_back({"n" + std::to_string(i)});
  Coordinator core(stored.spec, Term(2), stored.cluster, stored);
  const auto refused = [&](const std::string& name) {
    for (const Action& action : core.Step(NodeConnected{1, Hello(name)}, Time{1})) {
      if (std::holds_alternative<RefuseNode>(action)) return true;
    }
    return false;
  };
  EXPECT_TRUE(refused("one-more"));
  EXPECT_FALSE(refused("n5"));
}

TEST(Coordinator, AdoptionFromTheLastTerm_IsRefused) {
  JobSpec spec;
  spec.job = "j";
  Coordinator core(spec, Term(1), Incarnation(9), std::nullopt);
  NodeHello hello = Hello("a");
  hello.cluster = Incarnation(8);
  hello.term = Term(kMaxTerm);
  core.Step(NodeConnected{1, hello}, Time{1});
  Status answered;
  for (const Action& action : core.Step(AdoptRequested{1}, Time{2})) {
    if (const auto* answer = std::get_if<Answer>(&action)) answered = answer->status;
  }
  EXPECT_EQ(answered.code(), Code::kInvalid);
  EXPECT_NE(answered.message().find("leaves no higher one"), std::string::npos) << answered.message();
}

}  // namespace
}  // namespace locum
