#include "core/plan.h"

#include <gtest/gtest.h>

namespace locum {
namespace {

HeldCopy Copy(uint64_t worker, uint32_t rank, const std::string& domain, uint64_t step, uint64_t generation = 1) {
  return {Incarnation(worker), Rank(rank), domain, "addr", {true, Generation(generation), Step(step)}, false};
}
std::vector<RankPlan> Members(std::initializer_list<uint64_t> workers) {
  std::vector<RankPlan> members;
  for (uint64_t w : workers)
    members.push_back({Rank(static_cast<uint32_t>(members.size())), Incarnation(w), false, false});
  return members;
}
const std::vector<Recovered> kRan = {{Generation(1), Step(0)}};

TEST(Plan, OneReplaced_PullsFromAnySurvivor) {
  const auto plan = PlanRecovery({Copy(1, 0, "a", 7), Copy(2, 1, "b", 7)}, Members({1, 2, 9}), kRan);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, Step(7));
  EXPECT_EQ(plan->sources.size(), 2u);
  EXPECT_FALSE(plan->ranks[0].pull);
  EXPECT_FALSE(plan->ranks[1].pull);
  EXPECT_TRUE(plan->ranks[2].pull);
  EXPECT_FALSE(plan->ranks[2].staged) << "a newcomer has no copy to protect";
}

TEST(Plan, MostDomainsWin_NotTheNewest) {
  const auto plan =
      PlanRecovery({Copy(1, 0, "a", 8), Copy(2, 1, "b", 7), Copy(3, 2, "c", 7)}, Members({1, 2, 3}), kRan);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, Step(7));
  EXPECT_TRUE(plan->ranks[0].pull);
  EXPECT_FALSE(plan->ranks[0].staged) << "two others hold it";
}

TEST(Plan, TwoCopiesInOneDomain_CountOnce) {
  const auto plan = PlanRecovery({Copy(1, 0, "a", 8), Copy(2, 1, "a", 8), Copy(3, 2, "b", 7), Copy(4, 3, "c", 7)},
                                 Members({1, 2, 3, 4}), kRan);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, Step(7));
}

TEST(Plan, Tie_NewestWins_AndTheOtherIsStaged) {
  const auto plan = PlanRecovery({Copy(1, 0, "a", 8), Copy(2, 1, "b", 7)}, Members({1, 2, 9}), kRan);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, Step(8));
  EXPECT_TRUE(plan->ranks[1].pull);
  EXPECT_TRUE(plan->ranks[1].staged) << "its copy of step 7 would be the only other one";
  EXPECT_FALSE(plan->ranks[2].staged);
}

TEST(Plan, CopiesInOneDomainAlone_DoNotLetTheOtherBeOverwritten) {
  const auto plan =
      PlanRecovery({Copy(1, 0, "a", 8), Copy(2, 1, "a", 8), Copy(3, 2, "b", 7)}, Members({1, 2, 3}), kRan);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, Step(8));
  EXPECT_TRUE(plan->ranks[2].staged) << "when its node a dies, state 7 on b is the only one left";
}

TEST(Plan, SomeoneDone_LastStepIsKept) {
  auto done = Copy(1, 0, "a", 8);
  done.done = true;
  const auto plan = PlanRecovery({done, Copy(2, 1, "b", 7), Copy(3, 2, "c", 7)}, Members({1, 2, 3}), kRan);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, Step(8));
}

TEST(Plan, SpreadOfTwo_IsAnErrorAndNotAGuess) {
  const auto plan = PlanRecovery({Copy(1, 0, "a", 9), Copy(2, 1, "b", 7)}, Members({1, 2}), kRan);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kInvalid);
}

TEST(Plan, TornAndInitialStates_AreNoCopies) {
  auto torn = Copy(1, 0, "a", 7);
  torn.holding.valid = false;
  const auto plan = PlanRecovery({torn, Copy(2, 1, "b", 0, 0)}, Members({1, 2}), kRan);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kUnavailable);
}

TEST(Plan, NothingRanYet_InitialStatesCount) {
  const auto plan = PlanRecovery({Copy(1, 0, "a", 0, 0), Copy(2, 1, "b", 0, 0)}, Members({1, 2}), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, Step(0));
  EXPECT_FALSE(plan->ranks[0].pull);
}

TEST(Plan, HoldingBeyondALaterRecovery_LeftTheLineage) {
  const std::vector<Recovered> history = {{Generation(1), Step(0)}, {Generation(2), Step(7)}};
  EXPECT_FALSE(InLineage({true, Generation(1), Step(8)}, history));
  EXPECT_TRUE(InLineage({true, Generation(1), Step(7)}, history));
  EXPECT_TRUE(InLineage({true, Generation(2), Step(9)}, history));
  EXPECT_FALSE(InLineage({false, Generation(2), Step(9)}, history));
}

TEST(Plan, OldCopyFarBehind_IsNotAMember) {
  const std::vector<Recovered> history = {{Generation(1), Step(0)}, {Generation(2), Step(7)}};
  const auto plan = PlanRecovery({Copy(1, 0, "a", 49, 2), Copy(2, 1, "b", 49, 2), Copy(3, 2, "c", 2, 1)},
                                 Members({1, 2, 3}), history);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->step, Step(49));
  EXPECT_TRUE(plan->ranks[2].pull);
  EXPECT_FALSE(plan->ranks[2].staged) << "what it holds is of no use any more";
}

HashReport Hash(uint32_t rank, uint64_t hash, bool pulled = false) {
  return {Rank(rank), Incarnation(rank + 1), hash, pulled};
}

TEST(Hashes, AllEqual_Agree) { EXPECT_TRUE(JudgeHashes({Hash(0, 5), Hash(1, 5), Hash(2, 5, true)}, false).agree); }

TEST(Hashes, Majority_DistrustsTheOther) {
  const auto verdict = JudgeHashes({Hash(0, 6), Hash(1, 5), Hash(2, 5)}, false);
  EXPECT_FALSE(verdict.agree);
  EXPECT_FALSE(verdict.undecided);
  EXPECT_EQ(verdict.distrusted, std::vector<Incarnation>{Incarnation(1)});
}

TEST(Hashes, PulledCopies_HaveNoVote) {
  const auto verdict = JudgeHashes({Hash(0, 6), Hash(1, 6, true), Hash(2, 5), Hash(3, 5)}, false);
  EXPECT_FALSE(verdict.agree);
  EXPECT_FALSE(verdict.undecided);
  EXPECT_EQ(verdict.distrusted, (std::vector<Incarnation>{Incarnation(1), Incarnation(2)}));
}

TEST(Hashes, NoMajority_IsUndecided) { EXPECT_TRUE(JudgeHashes({Hash(0, 6), Hash(1, 5)}, false).undecided); }

TEST(Hashes, NothingTrainedYet_LowestRankCounts) {
  const auto verdict = JudgeHashes({Hash(0, 6), Hash(1, 5), Hash(2, 5)}, true);
  EXPECT_FALSE(verdict.undecided);
  EXPECT_EQ(verdict.distrusted, (std::vector<Incarnation>{Incarnation(2), Incarnation(3)}));
}

}  // namespace
}  // namespace locum
