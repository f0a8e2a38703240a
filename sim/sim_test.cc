#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/run.h"

namespace locum::sim {
namespace {

TEST(Simulator, RandomFaults_KeepEveryLaw) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const RunResult result = sim::Run(*MakePlan(seed, {}));
    ASSERT_TRUE(result.ok) << "locum-sim --seeds " << seed << " --notes: " << result.law << ": " << result.what;
  }
}

// Each was once broken, by what its first lines say.
TEST(Simulator, KeptScripts_KeepEveryLaw) {
  size_t scripts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCUM_SIM_SCRIPTS)) {
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const auto plan = FromScript(text.str());
    ASSERT_TRUE(plan.ok()) << entry.path() << ": " << plan.status().message();
    const RunResult result = sim::Run(*plan);
    EXPECT_TRUE(result.ok) << "locum-sim --script " << entry.path() << ": " << result.law << ": " << result.what;
    ++scripts;
  }
  EXPECT_GE(scripts, 7u);
}

TEST(Simulator, SameSeed_SameTrace) {
  const RunResult a = sim::Run(*MakePlan(7, {})), b = sim::Run(*MakePlan(7, {}));
  EXPECT_EQ(a.trace, b.trace);
  EXPECT_EQ(a.events, b.events);
}

TEST(Simulator, PlanAsText_IsTheSamePlan) {
  const RunPlan plan = *MakePlan(11, {});
  const auto back = FromScript(ToScript(plan));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(ToScript(*back), ToScript(plan));
  EXPECT_EQ(sim::Run(*back).trace, sim::Run(plan).trace);
}

TEST(Simulator, BadScripts_AreRefusedWithTheirLine) {
  EXPECT_EQ(FromScript("cluster nodes=2 spares=0 per-node=1\n5 kill-node\n").status().message(),
            "line 2: kill-node needs a node's name");
  EXPECT_EQ(FromScript("cluster nodes=2 moon=1\n").status().message(), "line 1: 'moon=1' is no setting");
  EXPECT_EQ(FromScript("x kill-node node-1\n").status().message(), "line 1: 'x' is no time in nanoseconds");
}

}  // namespace
}  // namespace locum::sim
