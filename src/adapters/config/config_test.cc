#include "adapters/config/config.h"

#include <gtest/gtest.h>

namespace locum {
namespace {

std::string ErrorOf(const std::string& toml) {
  auto config = ParseConfig(toml, "locum.toml");
  if (!config.ok()) return config.status().message();
  return CheckConfig(*config).message();
}

TEST(Config, AllKeys_AreTaken) {
  auto config = ParseConfig(R"([job]
nodes = 4
spares = 1
nproc_per_node = 2
seed = 7
dir = "/tmp/x"
command = ["python3", "train.py"]
[timeouts]
heartbeat = "50ms"
silence = "500ms"
grace = "2s"
[coordinator]
listen = "10.0.0.1:7000"
token_file = "t"
[agent]
coordinator = "10.0.0.1:7000"
name = "n1"
connect_timeout = "10s"
[run]
restart_nodes = false
restart_limit = 3
)",
                            "locum.toml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(CheckConfig(*config).ok()) << CheckConfig(*config).message();
  EXPECT_EQ(config->nodes, 4u);
  EXPECT_EQ(config->nproc_per_node, 2u);
  EXPECT_EQ(config->command, (std::vector<std::string>{"python3", "train.py"}));
  EXPECT_EQ(config->timeouts.heartbeat, std::chrono::milliseconds(50));
  EXPECT_EQ(config->timeouts.grace, std::chrono::seconds(2));
  EXPECT_EQ(config->listen, "10.0.0.1:7000");
  EXPECT_EQ(config->connect_timeout, std::chrono::seconds(10));
  EXPECT_FALSE(config->restart_nodes);
  EXPECT_EQ(config->origin.at("job.spares"), "locum.toml:3");
}

TEST(Config, UnknownKeys_AreRefusedWithTheNearestOne) {
  EXPECT_EQ(ErrorOf("[job]\nnodes = 2\nspare = 1\n"),
            "locum.toml:3: unknown key 'job.spare'; did you mean 'job.spares'?");
  EXPECT_EQ(ErrorOf("\n[jobs]\n"), "locum.toml:2: unknown key 'jobs'");
  EXPECT_EQ(ErrorOf("nodes = 2\n"), "locum.toml:1: unknown key 'nodes'; did you mean 'job.nodes'?");
  EXPECT_EQ(ErrorOf("[job]\ngrace = \"1s\"\n"),
            "locum.toml:2: unknown key 'job.grace'; did you mean 'timeouts.grace'?");
}

TEST(Config, WrongTypes_AreRefusedWithLineAndType) {
  EXPECT_EQ(ErrorOf("[job]\n\nnodes = \"4\"\n"), "locum.toml:3: job.nodes: must be an integer, is a text");
  EXPECT_EQ(ErrorOf("[job]\nnodes = 4.0\n"),
            "locum.toml:2: job.nodes: must be an integer, is a number with a fraction");
  EXPECT_EQ(ErrorOf("[timeouts]\ngrace = 5\n"),
            "locum.toml:2: timeouts.grace: must be a duration such as \"250ms\" or \"5s\", is an integer");
  EXPECT_EQ(ErrorOf("[run]\nrestart_nodes = 1\n"),
            "locum.toml:2: run.restart_nodes: must be true or false, is an integer");
  EXPECT_EQ(ErrorOf("[job]\ncommand = \"python3\"\n"),
            "locum.toml:2: job.command: must be a list of texts, as in [\"python3\", \"train.py\"], is a text");
  EXPECT_EQ(ErrorOf("[job]\ncommand = [\"a\", 1]\n"),
            "locum.toml:2: job.command: must be a list of texts, as in [\"python3\", \"train.py\"]; its entry 2 is an "
            "integer");
  EXPECT_EQ(ErrorOf("job = 3\n"), "locum.toml:1: job: must be a table, is an integer");
}

TEST(Config, EmptyTexts_AreRefused) {
  EXPECT_EQ(ErrorOf("[job]\ndir = \"\"\n"), "locum.toml:2: job.dir: is empty; give a value, or leave it out");
  Config config;
  EXPECT_EQ(SetFromFlag("job.dir", "--dir", "", &config).message(), "--dir: is empty; give a value, or leave it out");
}

TEST(Config, ValuesOutOfRange_AreRefused) {
  EXPECT_EQ(ErrorOf("[job]\nnodes = 0\n"), "locum.toml:2: job.nodes: 0 is not between 1 and 4096");
  EXPECT_EQ(ErrorOf("[coordinator]\nport = 70000\n"),
            "locum.toml:2: coordinator.port: 70000 is not between 0 and 65535");
  EXPECT_EQ(ErrorOf("[timeouts]\ngrace = \"5 s\"\n"),
            "locum.toml:2: timeouts.grace: '5 s' is not a duration such as \"250ms\", \"5s\" or \"2m\"");
  EXPECT_EQ(ErrorOf("[timeouts]\ngrace = \"9999999999999h\"\n"),
            "locum.toml:2: timeouts.grace: '9999999999999h' is longer than 30 days");
}

TEST(Config, BrokenToml_NamesTheLine) {
  std::string error = ErrorOf("[job]\nnodes = \n");
  EXPECT_EQ(error.substr(0, 14), "locum.toml:2: ") << error;
  error = ErrorOf("[job]\nnodes = 1\nnodes = 2\n");
  EXPECT_EQ(error.substr(0, 14), "locum.toml:3: ") << error;
}

TEST(Config, ContradictingTimeouts_NameBothAndTheReason) {
  EXPECT_EQ(ErrorOf("[timeouts]\nheartbeat = \"1800ms\"\nsilence = \"500ms\"\n"),
            "locum.toml:3: timeouts.silence: timeouts.silence (500ms) must be at least half of timeouts.heartbeat "
            "(1800ms): a node whose reports are late a few times would look dead; in the config file (--config) set "
            "timeouts.silence to 900ms or more, or lower timeouts.heartbeat");
  EXPECT_EQ(ErrorOf("[timeouts]\nheartbeat = \"1800ms\"\n"),
            "locum.toml:2: timeouts.heartbeat: timeouts.silence (700ms, the default) must be at least "
            "half of timeouts.heartbeat (1800ms): a node whose reports are late a few times would look dead; in the "
            "config file (--config) set timeouts.silence to 900ms or more, or lower timeouts.heartbeat");
  EXPECT_EQ(ErrorOf("[timeouts]\nfinish = \"1s\"\n"),
            "locum.toml:2: timeouts.finish: timeouts.finish (1s) must be at least timeouts.grace (5s, the default): "
            "the end would be given up while workers still have time to leave; in the config file (--config) set "
            "timeouts.finish to 5s or more, or lower timeouts.grace");
  for (const char* bad : {"hang = \"1ms\"", "collective = \"5m\"", "culprit_grace = \"1m\"", "adopt = \"1ms\""}) {
    EXPECT_EQ(ErrorOf("[timeouts]\n" + std::string(bad) + "\n").rfind("locum.toml:2: timeouts.", 0), 0u) << bad;
  }
}

TEST(Config, MoreRanksThanCanBe_AreRefused) {
  Config config;
  config.nodes = 4096;
  config.nproc_per_node = 16;
  EXPECT_TRUE(CheckConfig(config).ok());
  config.nproc_per_node = 17;
  EXPECT_EQ(CheckConfig(config).message(),
            "job.nproc_per_node: 4096 nodes with 17 workers each are more than 65536 ranks");
}

TEST(Config, Flag_OverridesTheFileAndIsNamed) {
  auto config = ParseConfig("[job]\nnodes = 4\n[timeouts]\ngrace = \"2s\"\n", "locum.toml");
  ASSERT_TRUE(config.ok());
  ASSERT_TRUE(SetFromFlag("job.nodes", "--nodes", "8", &*config).ok());
  EXPECT_EQ(config->nodes, 8u);
  EXPECT_EQ(SetFromFlag("job.nodes", "--nodes", "many", &*config).message(), "--nodes: 'many' is not an integer");
  ASSERT_TRUE(SetFromFlag("timeouts.grace", "--grace", "2m", &*config).ok());
  EXPECT_EQ(
      CheckConfig(*config).message(),
      "--grace: timeouts.grace: timeouts.finish (1m, the default) must be at least timeouts.grace (2m): the end would "
      "be given up while workers still have time to leave; in the config file (--config) set timeouts.finish to 2m or "
      "more, or lower timeouts.grace");
}

TEST(Config, Defaults_DoNotContradict) { EXPECT_TRUE(CheckConfig(Config{}).ok()) << CheckConfig(Config{}).message(); }

TEST(Config, ForeignCharacters_AreTextOrAnError) {
  EXPECT_EQ(ErrorOf("# gr\u00fc\u00dfe\n[job]\ndir = \"/d/\u00e9\"  # \u00e9\n"), "");
  for (const char* bad :
       {"\u0347", "[job]\n\u00e9 = 1\n", "[job]\nnodes = 1_\"\ufeff", "[job]\ndir = \"\"\"x\\\n\u00e9\"\"\n"}) {
    EXPECT_EQ(ErrorOf(bad).rfind("locum.toml:", 0), 0u) << bad;
  }
}

TEST(Config, Durations_ComeBack) {
  for (const char* text : {"0s", "1ns", "250ms", "5s", "2m", "1h", "90s", "1500ms"}) {
    auto duration = ParseDuration(text);
    ASSERT_TRUE(duration.ok()) << text;
    EXPECT_EQ(*ParseDuration(FormatDuration(*duration)), *duration);
  }
  for (const char* text : {"", "5", "-5s", "s", "5s ", "5 s", "1e3s", "5sec"})
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
}

}  // namespace
}  // namespace locum
