#include "sim/run.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "sim/script.h"

namespace locum::sim {
namespace {

constexpr Duration Sec(int64_t s) { return std::chrono::seconds(s); }
constexpr Duration kCalmLimit = Sec(900);

// What takes a copy of the state away, or may.
bool Takes(const std::string& command) {
  static const std::set<std::string> kTakes = {"kill-node",  "kill-rank", "leave-node",  "cut-link",  "cut-peers",
                                               "cut-out",    "cut-in",    "tear-rank",   "exit-rank", "stick-rank",
                                               "sleep-rank", "hang-rank", "deafen-rank", "spoil-rank"};
  return kTakes.count(command) != 0;
}

class Runner {
 public:
  explicit Runner(const RunPlan& plan) : plan_(plan), cluster_(plan.spec, plan.options) {}

  RunResult Do() {
    for (const Deed& deed : plan_.deeds) {
      if (cluster_.ended() || Broken()) break;
      cluster_.RunUntil([this] { return cluster_.ended(); }, deed.when - cluster_.now());
      if (!cluster_.ended()) Perform(deed.line);
      lost_all_ |= cluster_.watch().StateLost();
    }
    if (!Broken()) Calm();
    Judge();
    Collect();
    return std::move(result_);
  }

 private:
  bool Broken() const { return !cluster_.watch().violations().empty(); }

  void Perform(const std::string& line) {
    if (!Allowed(line)) return;
    const sim::Done done = sim::Do(&cluster_, line);
    if (!done.applies) return;
    ++result_.faults;
    result_.done.push_back({cluster_.now(), line});
    exited_ |= line.rfind("exit-rank", 0) == 0 || line.rfind("fail-program", 0) == 0 || line.rfind("tear-rank", 0) == 0;
  }

  // A copy that can be had is left when this one is gone. Losing the last is a loss that nobody can mend; scenarios show
  // what is told then.
  bool Allowed(const std::string& line) {
    std::istringstream words(line);
    std::string command, what;
    words >> command >> what;
    if (!Takes(command) || cluster_.watch().newest() == Generation(0)) return true;
    const bool at_node = command.ends_with("-node") || command.rfind("cut-", 0) == 0;
    const uint32_t rank = at_node ? 0 : static_cast<uint32_t>(std::strtoul(what.c_str(), nullptr, 10));
    const uint64_t made = cluster_.watch().made();
    uint32_t left = 0;
    for (const auto& [id, worker] : cluster_.world().workers) {
      const Word word = worker->word();
      const bool copy = worker->Complete() && word.generation != Generation(0) && word.step.value >= made &&
                        !worker->asleep() && !worker->deaf() && !worker->spoiled() && worker->node()->up() &&
                        !worker->node()->leaving() && cluster_.Whole(worker->node()->name());
      const bool taken = at_node ? worker->node()->name() == what : worker->rank() == locum::Rank(rank);
      left += copy && !taken;
    }
    return left >= (command == "spoil-rank" ? 3u : 1u);
  }

  // Everything is mended; an operator does what the status asks for.
  void Calm() {
    cluster_.RunFor(std::chrono::milliseconds(100));  // a node that was told to leave is gone by then
    Mend();
    const Time end = cluster_.now() + kCalmLimit;
    cluster_.watch().Calm();
    int rounds = 0;
    while (!cluster_.ended() && !Broken() && cluster_.now() < end) {
      cluster_.RunUntil([this] { return cluster_.ended() || Broken(); }, Sec(rounds < 5 ? 2 : 20));
      if (cluster_.ended() || Broken()) break;
      ++rounds;
      Mend();
      AdoptOrMakeRoom();
      if (!cluster_.control().up()) continue;
      const ClusterView view = cluster_.control().View();
      if (view.waiting_for.find("start the job in a new directory") != std::string::npos && !AnyCopy()) {
        given_up_ = true;
        return;
      }
      const bool wants_spare = view.waiting_for.find("a spare") != std::string::npos;
      if (rounds >= 6 && wants_spare && !cluster_.Has("node-added")) cluster_.AddNode("node-added");
      if (rounds > 6) StartRefused();
      if (rounds > 10) CheckAlarms(view);
    }
  }

  bool AnyCopy() {
    const auto& workers = cluster_.world().workers;
    return std::any_of(workers.begin(), workers.end(),
                       [](const auto& w) { return w.second->word().generation != Generation(0); });
  }

  void Mend() {
    Control& control = cluster_.control();
    if (!control.up() && !control.ended()) control.Start();
    control.MendStore();
    for (const std::string& name : cluster_.NodeNames()) {
      Node& node = cluster_.At(name);
      if (!cluster_.Whole(name)) cluster_.Heal(name);
      if (node.up() && node.Stuck() && Allowed("kill-node " + name)) node.Kill();  // rebooted by hand
      for (const auto& worker : node.Workers()) {
        if (worker->asleep()) worker->Wake();
        worker->Behave();
      }
      node.WakeAgent();
      if (!control.ended() && !node.up()) node.Start();
    }
  }

  // Where two databases were lost one after the other, the refusal asks to end the agents of one cluster.
  void AdoptOrMakeRoom() {
    if (cluster_.control().Adopt().message().find("nodes of two clusters") == std::string::npos) return;
    for (const std::string& name : cluster_.NodeNames()) {
      Node& node = cluster_.At(name);
      const auto workers = node.Workers();
      const bool trained = std::any_of(workers.begin(), workers.end(),
                                       [](const auto& w) { return w->word().generation != Generation(0); });
      if (!node.up() || trained) continue;
      node.Kill();
      node.Start();
    }
  }

  // Who trains for a coordinator that is gone for good is turned away; an operator starts it anew.
  void StartRefused() {
    for (const std::string& name : cluster_.NodeNames()) {
      Node& node = cluster_.At(name);
      if (!node.up() || node.Hears() || !Allowed("kill-node " + name)) continue;
      node.Kill();
      node.Start();
    }
  }

  // Long after all was mended, in a job that runs.
  void CheckAlarms(const ClusterView& view) {
    if (view.phase != JobPhase::kRunning) return;
    for (const AlarmView& alarm : view.alarms) {
      const bool spare = alarm.name == "no_spare" && view.spares == 0;
      if (spare || alarm.age < Sec(60)) continue;
      cluster_.watch().Break("alarms end with their reason", alarm.name + " " + alarm.node + ": " + alarm.text);
    }
  }

  void Judge() {
    if (Broken()) return;
    const Control& control = cluster_.control();
    Watch& watch = cluster_.watch();
    if (given_up_) return;
    if (!control.ended()) {
      const std::string phase = control.up() ? JobPhaseName(control.View().phase) : "no coordinator";
      const std::string waits = control.up() ? control.View().waiting_for : "";
      return watch.Break("a job that can go on does", phase + ", waiting for '" + waits + "'\n" + cluster_.Describe());
    }
    const int status = control.exit_status();
    if (status == kExitProgramFault && !exited_) {
      watch.Break("the program is blamed only for its own fault", control.end_reason());
    } else if (status != 0 && status != kExitProgramFault && !lost_all_ && !Finishing() && !NothingMade()) {
      watch.Break("no job fails that could go on", control.end_reason());
    }
    const uint64_t most = uint64_t{result_.faults + 1} * plan_.spec.workers_per_node * 2;
    if (watch.activated() > most) {
      watch.Break("spares are used for faults", std::to_string(watch.activated()) + " ranks were given to spares for " +
                                                    std::to_string(result_.faults) + " faults");
    }
  }

  // A coordinator that takes up or over a job without a step cannot know that nothing is lost with its workers.
  bool NothingMade() {
    const Watch& watch = cluster_.watch();
    return watch.made() == 0 && (watch.database_lost() || watch.newest() == Generation(0));
  }

  // A worker that is killed after the end is on record spoils the exit status, not the result.
  bool Finishing() const {
    const auto& notes = const_cast<Runner*>(this)->cluster_.control().notes();
    return std::any_of(notes.begin(), notes.end(), [](const TimedNote& n) { return n.note.name == "job_finishing"; });
  }

  void Collect() {
    const Control& control = cluster_.control();
    result_.generations = control.stored() ? control.stored()->generation.value : 0;
    result_.events = cluster_.world().steps_taken;
    result_.core_events = control.events();
    result_.exit_status = control.exit_status();
    result_.notes = control.notes();
    const auto add = [this](const std::string& line) {
      for (const char c : line) result_.trace = Mix64(result_.trace * 31 + static_cast<unsigned char>(c));
    };
    for (const TimedNote& note : result_.notes) add(ToText(note));
    for (const Deed& deed : result_.done) add(std::to_string(deed.when.ns) + deed.line);
    add(std::to_string(cluster_.now().ns));
    result_.ok = !Broken();
    if (result_.ok) return;
    const Violation& first = cluster_.watch().violations().front();
    result_.law = first.law;
    result_.what = first.what;
    result_.when = first.when;
  }

  const RunPlan& plan_;
  Cluster cluster_;
  RunResult result_;
  bool lost_all_ = false, exited_ = false, given_up_ = false;
};

}  // namespace

RunResult Run(const RunPlan& plan) { return Runner(plan).Do(); }

RunPlan Shrink(const RunPlan& plan, const std::string& law) {
  RunPlan best = plan;
  const auto breaks = [&](const RunPlan& smaller) { return Run(smaller).law == law; };
  // Halves, quarters, ... single lines.
  for (size_t size = std::max<size_t>(1, best.deeds.size() / 2);; size = std::max<size_t>(1, size / 2)) {
    bool again = false;
    for (size_t at = 0; at < best.deeds.size();) {
      RunPlan smaller = best;
      const auto begin = smaller.deeds.begin() + static_cast<ptrdiff_t>(at);
      smaller.deeds.erase(begin, begin + static_cast<ptrdiff_t>(std::min(size, smaller.deeds.size() - at)));
      if (breaks(smaller)) {
        best = std::move(smaller);
        again = true;
      } else {
        at += size;
      }
    }
    if (size == 1 && !again) return best;
  }
}

std::string ToText(const TimedNote& note) {
  std::string text = std::to_string(note.when.ns / 1000) + " us " + note.note.name;
  if (!note.note.node.empty()) text += " " + note.note.node;
  if (note.note.rank != kNoRank) text += " rank " + std::to_string(note.note.rank.value);
  text += " g" + std::to_string(note.note.generation.value) + " s" + std::to_string(note.note.step.value);
  for (const auto& [key, value] : note.note.details) text += " " + key + "=" + value;
  if (!note.note.reason.empty()) text += ": " + note.note.reason;
  return text;
}

std::string Trail(const RunResult& result) {
  constexpr size_t kLines = 40;
  std::vector<std::pair<Time, std::string>> lines;
  for (const TimedNote& note : result.notes) {
    if (note.when <= result.when) lines.emplace_back(note.when, ToText(note));
  }
  for (const Deed& deed : result.done) {
    if (deed.when <= result.when)
      lines.emplace_back(deed.when, std::to_string(deed.when.ns / 1000) + " us > " + deed.line);
  }
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (size_t i = lines.size() > kLines ? lines.size() - kLines : 0; i < lines.size(); ++i)
    text += "    " + lines[i].second + "\n";
  return text;
}

}  // namespace locum::sim
