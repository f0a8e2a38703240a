#include "sim/script.h"

#include <charconv>
#include <functional>
#include <map>
#include <sstream>

namespace locum::sim {
namespace {

struct Words {
  std::string command, what;
  uint64_t number = 0, second = 0;
  int count = 0;
};

bool ToNumber(const std::string& text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

Words Split(const std::string& line) {
  Words words;
  std::istringstream in(line);
  std::string second;
  in >> words.command;
  if (in >> words.what) ++words.count;
  if (in >> second) ++words.count;
  ToNumber(words.what, &words.number);
  ToNumber(second, &words.second);
  return words;
}

using NodeDeed = std::function<bool(Cluster&, const std::string&)>;
bool Up(Cluster& c, const std::string& name) { return c.At(name).up(); }

const std::map<std::string, NodeDeed>& AtNode() {
  static const std::map<std::string, NodeDeed> kDeeds = {
      {"kill-node", [](Cluster& c, const std::string& n) { return Up(c, n) && (c.At(n).Kill(), true); }},
      {"start-node", [](Cluster& c, const std::string& n) { return !Up(c, n) && (c.At(n).Start(), true); }},
      {"kill-agent", [](Cluster& c, const std::string& n) { return Up(c, n) && (c.At(n).KillAgent(), true); }},
      {"sleep-agent", [](Cluster& c, const std::string& n) { return Up(c, n) && (c.At(n).SleepAgent(), true); }},
      {"wake-agent",
       [](Cluster& c, const std::string& n) { return c.At(n).agent_asleep() && (c.At(n).WakeAgent(), true); }},
      {"leave-node", [](Cluster& c, const std::string& n) { return Up(c, n) && (c.At(n).Leave(), true); }},
      {"cut-link", [](Cluster& c, const std::string& n) { return c.Cut(n), true; }},
      {"cut-peers", [](Cluster& c, const std::string& n) { return c.CutPeers(n), true; }},
      {"cut-coordinator", [](Cluster& c, const std::string& n) { return c.CutCoordinator(n), true; }},
      {"cut-out", [](Cluster& c, const std::string& n) { return c.CutOut(n), true; }},
      {"cut-in", [](Cluster& c, const std::string& n) { return c.CutIn(n), true; }},
      {"heal-link", [](Cluster& c, const std::string& n) { return !c.Whole(n) && (c.Heal(n), true); }}};
  return kDeeds;
}

const std::map<std::string, std::function<void(Worker&)>>& AtRank() {
  static const std::map<std::string, std::function<void(Worker&)>> kDeeds = {
      {"stick-rank", &Worker::Stick},   {"tear-rank", &Worker::TearNext},   {"stop-rank", &Worker::StopNext},
      {"hang-rank", &Worker::Hang},     {"sleep-rank", &Worker::Sleep},     {"wake-rank", &Worker::Wake},
      {"deafen-rank", &Worker::Deafen}, {"break-rank", &Worker::BreakNext}, {"spoil-rank", &Worker::Spoil}};
  return kDeeds;
}

bool Down(Cluster& c) { return !c.control().up() && !c.ended(); }
bool Runs(Cluster& c) { return c.control().up() && !c.ended(); }

const std::map<std::string, std::function<bool(Cluster&, const Words&)>>& AtAll() {
  static const std::map<std::string, std::function<bool(Cluster&, const Words&)>> kDeeds = {
      {"kill-coordinator", [](Cluster& c, const Words&) { return Runs(c) && (c.control().Kill(), true); }},
      {"start-coordinator", [](Cluster& c, const Words&) { return Down(c) && (c.control().Start(), true); }},
      {"crash-coordinator",
       [](Cluster& c, const Words& w) {
         return Runs(c) && (c.control().KillAtEffect(static_cast<uint32_t>(w.number)), true);
       }},
      {"pause-coordinator",
       [](Cluster& c, const Words& w) {
         if (!Runs(c) || c.control().paused()) return false;
         c.control().Pause(std::chrono::milliseconds(w.number));
         return true;
       }},
      {"cut-coordinators", [](Cluster& c, const Words&) { return c.CutAllFromCoordinator(), true; }},
      {"fail-store", [](Cluster& c, const Words&) { return Runs(c) && (c.control().FailStore(), true); }},
      {"mend-store",
       [](Cluster& c, const Words&) { return c.control().store_fails() && (c.control().MendStore(), true); }},
      {"lose-database",
       [](Cluster& c, const Words&) {
         if (!Down(c)) return false;
         // A job whose end is on record would only be begun anew.
         const auto& stored = c.control().stored();
         if (stored && stored->phase >= JobPhase::kFinishing) return false;
         c.control().LoseDatabase();
         return true;
       }},
      {"keep-database", [](Cluster& c, const Words&) { return c.control().KeepOldDatabase(), true; }},
      {"restore-database",
       [](Cluster& c, const Words&) { return Down(c) && (c.control().RestoreOldDatabase(), true); }},
      {"deafen-program",
       [](Cluster& c, const Words&) {
         c.world().all_deaf = true;
         for (const auto& [id, worker] : c.world().workers) worker->Deafen();
         return true;
       }},
      {"fail-program",
       [](Cluster& c, const Words& w) {
         c.world().failing_rank = Rank(static_cast<uint32_t>(w.number));
         c.world().failing_step = Step(w.second);
         return true;
       }},
      {"exit-rank",
       [](Cluster& c, const Words& w) {
         const auto worker = c.Holder(Rank(static_cast<uint32_t>(w.number)));
         return worker && worker->ExitInStep(static_cast<int>(w.second));
       }},
      {"kill-rank", [](Cluster& c, const Words& w) {
         const auto worker = c.Holder(Rank(static_cast<uint32_t>(w.number)));
         return worker && !worker->stuck() && (worker->End({0, 9}), true);
       }}};
  return kDeeds;
}

}  // namespace

std::string CheckLine(const std::string& line) {
  const Words words = Split(line);
  uint64_t number = 0;
  if (AtNode().count(words.command) || words.command == "add-node" || words.command == "failback") {
    return words.what.empty() ? words.command + " needs a node's name" : "";
  }
  if (AtRank().count(words.command)) {
    return ToNumber(words.what, &number) ? "" : words.command + " needs a rank's number";
  }
  if (AtAll().count(words.command) || words.command == "adopt") return "";
  return "'" + words.command + "' is nothing that can be done; see sim/script.h";
}

Done Do(Cluster* cluster, const std::string& line) {
  const Words words = Split(line);
  Cluster& c = *cluster;
  if (words.command == "adopt") return {true, c.control().Adopt()};
  if (words.command == "failback") return {true, c.control().Failback(words.what)};
  if (words.command == "add-node") return {!c.Has(words.what) && (c.AddNode(words.what), true), OkStatus()};
  if (const auto deed = AtNode().find(words.command); deed != AtNode().end()) {
    return {c.Has(words.what) && deed->second(c, words.what), OkStatus()};
  }
  if (const auto deed = AtRank().find(words.command); deed != AtRank().end()) {
    if (words.command == "spoil-rank") c.watch().Spoiled();
    return {c.AtRank(Rank(static_cast<uint32_t>(words.number)), deed->second), OkStatus()};
  }
  if (const auto deed = AtAll().find(words.command); deed != AtAll().end()) return {deed->second(c, words), OkStatus()};
  return {};
}

}  // namespace locum::sim
