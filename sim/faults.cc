#include "sim/faults.h"

#include <algorithm>
#include <utility>

namespace locum::sim {

namespace {

constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }

class Run {
 public:
  explicit Run(uint64_t seed) : random_(seed ^ 0x5eed), cluster_(Spec(seed), Settings(seed)) {}

  RunResult Do() {
    const Time quiet = Time{} + Ms(static_cast<int64_t>(2000 + random_.Below(6000)));
    while (cluster_.now() < quiet && !cluster_.ended()) {
      cluster_.RunFor(Ms(static_cast<int64_t>(1 + random_.Below(random_.OneIn(3) ? 20 : 800))));
      if (!cluster_.ended()) Fault();
      lost_all_ |= cluster_.StateLost();
    }
    Heal();
    lost_all_ |= cluster_.StateLost();
    bool finished = false;
    for (int minute = 0; minute < 10 && !finished; ++minute) {
      cluster_.RunFor(std::chrono::seconds(2));
      if (!cluster_.ended()) AdoptOrMakeRoom();
      const bool waits = !cluster_.ended() && cluster_.coordinator_up() &&
                         cluster_.View().waiting_for.find("a spare") != std::string::npos;
      if (minute == 1 && waits) cluster_.AddNode("node-added");  // what status asks for
      finished = cluster_.RunUntil([&] { return cluster_.ended(); }, std::chrono::seconds(58));
    }
    result_.generations = cluster_.coordinator_up() ? cluster_.View().generation.value : 0;
    result_.notes = cluster_.notes();
    if (!cluster_.violations().empty()) {
      result_.what = cluster_.violations().front();
    } else if (!finished) {
      result_.what = "the job has not ended: " + std::string(JobPhaseName(cluster_.View().phase)) + ", waiting for '" +
                     cluster_.View().waiting_for + "'\n" + cluster_.Describe();
    } else if (cluster_.exit_status() != 0 && cluster_.exit_status() != kExitProgramFault && !lost_all_ &&
               !Finishing()) {
      // What is torn, and what exits by itself, may happen to one rank twice in a row.
      result_.what = "the job failed: " + cluster_.View().reason;
    } else {
      result_.ok = true;
    }
    return result_;
  }

 private:
  static JobSpec Spec(uint64_t seed) {
    Random r(seed);
    JobSpec spec;
    spec.job = "sim";
    spec.command = {"train"};
    spec.nodes = static_cast<uint32_t>(2 + r.Below(4));
    spec.spares = static_cast<uint32_t>(r.Below(3));
    spec.workers_per_node = static_cast<uint32_t>(1 + r.Below(2));
    spec.seed = seed;
    spec.timeouts.hang = std::chrono::seconds(3);
    spec.timeouts.collective = Ms(static_cast<int64_t>(200 + r.Below(2000)));
    spec.limits.restarts = static_cast<uint32_t>(r.Below(8));
    spec.limits.recoveries = 1000;
    return spec;
  }
  static Options Settings(uint64_t seed) {
    Random r(seed ^ 77);
    Options options;
    options.seed = seed;
    options.steps = 30 + r.Below(100);
    options.compute = Ms(static_cast<int64_t>(1 + r.Below(60)));
    options.update = Ms(static_cast<int64_t>(1 + r.Below(10)));
    return options;
  }

  uint32_t Holders() const { return cluster_.StateHolders(); }

  void Fault() {
    ++result_.faults;
    const auto names = cluster_.NodeNames();
    const std::string& name = names[random_.Below(names.size())];
    const bool up = cluster_.coordinator_up();
    // Killing the last copy is a loss that no one can mend; the script tests cover it.
    const bool running = up && cluster_.View().phase == JobPhase::kRunning && Holders() >= 2;
    if (up && cluster_.View().phase == JobPhase::kGathering) (void)cluster_.Adopt();
    const Rank rank = up ? RandomRank() : Rank(0);
    switch (random_.Below(18)) {
      case 0:
      case 1:
        if (running && cluster_.NodeUp(name)) cluster_.KillNode(name);
        break;
      case 2:
        if (!cluster_.NodeUp(name)) cluster_.StartNode(name);
        break;
      case 3:
        if (running && random_.OneIn(2)) cluster_.KillWorker(rank);
        break;
      case 4:
        if (!running || cluster_.LinkCut(name)) break;
        random_.OneIn(3) ? cluster_.CutPeers(name) : cluster_.CutLink(name);
        break;
      case 5:
        if (cluster_.LinkCut(name)) cluster_.HealLink(name);
        break;
      case 6:
        if (cluster_.NodeUp(name)) cluster_.KillAgent(name);
        break;
      case 7:
        if (up && random_.OneIn(3)) {
          cluster_.KillCoordinator();
          if (running && random_.OneIn(4)) cluster_.LoseDatabase();
        } else if (!up) {
          cluster_.StartCoordinator();
        }
        break;
      case 8:
        if (up && random_.OneIn(4)) cluster_.PauseCoordinator(Ms(static_cast<int64_t>(random_.Below(3000))));
        break;
      case 9:
        if (up) (void)cluster_.Failback(name);
        break;
      case 10:
        if (running && random_.OneIn(2)) cluster_.TearWorker(rank);
        break;
      case 11:
        // Twice by the same rank on two nodes is the program's own fault, and ends the job.
        if (running && !std::exchange(exited_, true)) cluster_.ExitWorker(rank, static_cast<int>(random_.Below(2)));
        break;
      case 12:
        // If all hang nobody waits, which looks like one slow step.
        if (running && random_.OneIn(3) && !std::exchange(hung_, true)) cluster_.HangWorker(rank);
        break;
      case 13:
        if (running && random_.OneIn(3)) cluster_.LeaveNode(name);
        break;
      case 14:
        if (running && random_.OneIn(8)) cluster_.StickWorker(rank);
        break;
      case 15:
        if (cluster_.store_fails()) {
          cluster_.MendStore();
        } else if (up && random_.OneIn(3)) {
          cluster_.FailStore();
        }
        break;
      case 16:
        if (running) cluster_.DeafenWorker(rank);
        break;
      case 17:
        if (running && random_.OneIn(2)) cluster_.SleepWorker(rank);
        break;
    }
  }

  // A worker that is killed after the end is on record spoils the exit status, not the result.
  bool Finishing() const {
    return std::any_of(cluster_.notes().begin(), cluster_.notes().end(),
                       [](const TimedNote& n) { return n.note.name == "job_finishing"; });
  }

  Rank RandomRank() {
    const auto ranks = cluster_.View().ranks;
    return ranks.empty() ? Rank(0) : ranks[random_.Below(ranks.size())].rank;
  }

  // Where two databases were lost one after the other, the refusal asks to end the agents of one cluster.
  void AdoptOrMakeRoom() {
    if (cluster_.Adopt().message().find("nodes of two clusters") == std::string::npos) return;
    for (const std::string& name : cluster_.NodeNames()) {
      if (!cluster_.NodeUp(name) || !cluster_.NeverTrained(name)) continue;
      cluster_.KillNode(name);
      cluster_.StartNode(name);
    }
  }

  void Heal() {
    cluster_.RunFor(Ms(100));  // a node that was told to leave is gone by then
    if (!cluster_.coordinator_up() && !cluster_.ended()) cluster_.StartCoordinator();
    cluster_.MendStore();
    for (const std::string& name : cluster_.NodeNames()) {
      if (cluster_.LinkCut(name)) cluster_.HealLink(name);
      if (cluster_.NodeUp(name) && cluster_.Stuck(name)) cluster_.KillNode(name);  // rebooted by hand
      if (!cluster_.ended() && !cluster_.NodeUp(name)) cluster_.StartNode(name);
    }
  }

  Random random_;
  Cluster cluster_;
  RunResult result_;
  bool lost_all_ = false;
  bool exited_ = false;
  bool hung_ = false;
};

}  // namespace

RunResult RunWithFaults(uint64_t seed) { return Run(seed).Do(); }

std::string ToText(const TimedNote& note) {
  std::string text = std::to_string(note.when.ns / 1000) + " us " + note.note.name;
  if (!note.note.node.empty()) text += " " + note.note.node;
  if (note.note.rank != kNoRank) text += " rank=" + std::to_string(note.note.rank.value);
  text += " g=" + std::to_string(note.note.generation.value) + " s=" + std::to_string(note.note.step.value);
  if (!note.note.reason.empty()) text += " (" + note.note.reason + ")";
  return text;
}

}  // namespace locum::sim
