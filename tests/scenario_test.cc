// Scripts of what happens to a cluster, with the history that the coordinator's decisions must write.
//
// A script is lines of commands, a line "----", and the expected history: events without times and without the
// random parts, in order. LOCUM_UPDATE=1 rewrites the expected part; read the difference before committing it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/script.h"

namespace locum::sim {
namespace {

std::filesystem::path ScenarioDir() { return LOCUM_SCENARIOS; }

class ScenarioRun {
 public:
  // Runs the commands and returns the history.
  std::string Run(std::istream& commands) {
    std::string line;
    while (std::getline(commands, line) && line != "----") {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream words(line);
      std::string command;
      words >> command;
      Do(command, words, line);
    }
    Flush();
    for (const Violation& v : cluster_->watch().violations()) out_ += "BROKEN LAW " + v.law + ": " + v.what + "\n";
    return out_;
  }

 private:
  void Do(const std::string& command, std::istringstream& words, const std::string& line) {
    if (command == "cluster") return Make(words);
    Flush();
    out_ += "> " + line + "\n";
    std::string what;
    words >> what;
    if (command == "run-for") {
      cluster_->RunFor(std::chrono::milliseconds(std::stoi(what)));
    } else if (command == "run-until") {
      RunUntil(what, words);
    } else if (CheckLine(line).empty()) {
      const sim::Done done = sim::Do(cluster_.get(), line);
      const bool asked = command == "adopt" || command == "failback";
      if (!done.applies) out_ += "nothing to do it to\n";
      if (asked) out_ += done.answer.ok() ? "accepted\n" : "refused: " + done.answer.message() + "\n";
    } else {
      Show(command, line);
    }
  }

  void Show(const std::string& command, const std::string& line) {
    if (command == "alarms") {
      for (const AlarmView& a : cluster_->control().View().alarms) out_ += a.name + " " + a.node + ": " + a.text + "\n";
    } else if (command == "waiting") {
      out_ += "waiting for: " + cluster_->control().View().waiting_for + "\n";
    } else if (command == "ranks") {
      for (const RankView& r : cluster_->control().View().ranks)
        out_ += "rank " + std::to_string(r.rank.value) + " on " + r.node + "\n";
    } else if (command == "nodes") {
      for (const NodeView& n : cluster_->control().View().nodes) {
        out_ += n.name + " " + NodeStateName(n.state) + " " + RoleName(n.role) + "\n";
      }
    } else {
      FAIL() << "unknown command: " << line;
    }
  }

  void Make(std::istringstream& words) {
    JobSpec spec;
    spec.job = "job";
    spec.command = {"train"};
    spec.timeouts.heartbeat = std::chrono::milliseconds(50);  // scripts wait for steps that a report shows
    Options options;
    options.jitter = false;
    std::string word;
    while (words >> word) {
      const size_t eq = word.find('=');
      const uint32_t n = static_cast<uint32_t>(std::stoul(word.substr(eq + 1)));
      const std::string key = word.substr(0, eq);
      if (key == "nodes") spec.nodes = n;
      if (key == "spares") spec.spares = n;
      if (key == "per-node") spec.workers_per_node = n;
      if (key == "worker-to-spare") spec.worker_to_spare = n != 0;
      if (key == "recoveries") spec.limits.recoveries = n;
      if (key == "collective-ms") spec.timeouts.collective = std::chrono::milliseconds(n);
      if (key == "steps") options.steps = n;
      if (key == "compute-ms") options.compute = std::chrono::milliseconds(n);
    }
    cluster_ = std::make_unique<Cluster>(spec, options);
  }

  void RunUntil(const std::string& what, std::istringstream& words) {
    std::string arg;
    words >> arg;
    const auto view = [this] { return cluster_->control().View(); };
    const bool reached = cluster_->RunUntil(
        [&] {
          if (what == "ended") return cluster_->ended();
          if (what == "made") return cluster_->watch().made() >= std::stoul(arg);
          if (!cluster_->control().up()) return false;
          if (what == "step") return view().step.value >= std::stoul(arg);
          if (what == "spares") return view().spares >= std::stoul(arg);
          for (const TimedNote& note : cluster_->control().notes()) {
            if (what == "note" && note.note.name == arg) return true;
          }
          return false;
        },
        std::chrono::seconds(900));
    Flush();
    if (!reached) out_ += "NOT REACHED in 900 s\n";
    if (cluster_->ended()) out_ += "exit status " + std::to_string(cluster_->control().exit_status()) + "\n";
  }

  void Flush() {
    const auto& notes = cluster_->control().notes();
    for (; printed_ < notes.size(); ++printed_) {
      const Note& n = notes[printed_].note;
      out_ += n.name;
      if (!n.node.empty()) out_ += " " + n.node;
      if (n.rank != kNoRank) out_ += " rank " + std::to_string(n.rank.value);
      out_ += " g" + std::to_string(n.generation.value) + " s" + std::to_string(n.step.value);
      for (const auto& [key, value] : n.details) {
        if (key == "state" || key.rfind("rank_", 0) == 0) out_ += " " + key + "=" + value;
      }
      if (!n.reason.empty()) out_ += ": " + n.reason;
      out_ += "\n";
    }
  }

  std::unique_ptr<Cluster> cluster_;
  size_t printed_ = 0;
  std::string out_;
};

class Scenario : public testing::TestWithParam<std::string> {};

TEST_P(Scenario, History_IsTheExpected) {
  const auto path = ScenarioDir() / (GetParam() + ".txt");
  std::ifstream in(path);
  ASSERT_TRUE(in.good()) << path;
  std::stringstream whole;
  whole << in.rdbuf();
  const std::string text = whole.str();
  const size_t cut = text.find("----\n");
  ASSERT_NE(cut, std::string::npos) << path << " has no line ----";
  std::istringstream commands(text);
  const std::string history = ScenarioRun().Run(commands);
  if (std::getenv("LOCUM_UPDATE")) {
    std::ofstream(path) << text.substr(0, cut + 5) << history;
    return;
  }
  EXPECT_EQ(history, text.substr(cut + 5));
}

std::vector<std::string> AllScenarios() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ScenarioDir())) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Core, Scenario, testing::ValuesIn(AllScenarios()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace locum::sim
