#include <gtest/gtest.h>

#include "sim/faults.h"

namespace locum::sim {
namespace {

TEST(Simulator, RandomFaults_EveryRunReachesItsEnd) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const RunResult result = RunWithFaults(seed);
    ASSERT_TRUE(result.ok) << "locum-sim --seed " << seed << " --notes: " << result.what;
  }
}

// Runs that found a mistake once.
TEST(Simulator, SeedsThatFoundMistakes_ReachTheirEnd) {
  // 901018: a worker started between a node's hello and a strange coordinator's welcome; nobody welcomed it again.
  for (const uint64_t seed : {901018}) {
    const RunResult result = RunWithFaults(seed);
    EXPECT_TRUE(result.ok) << "locum-sim --seed " << seed << " --notes: " << result.what;
  }
}

TEST(Simulator, SameSeed_SameHistory) {
  const RunResult a = RunWithFaults(7), b = RunWithFaults(7);
  ASSERT_EQ(a.notes.size(), b.notes.size());
  for (size_t i = 0; i < a.notes.size(); ++i) EXPECT_EQ(ToText(a.notes[i]), ToText(b.notes[i]));
}

}  // namespace
}  // namespace locum::sim
