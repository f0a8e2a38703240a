#include "sim/plan.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "sim/script.h"

namespace locum::sim {
namespace {

constexpr Duration Ms(uint64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration Us(uint64_t us) { return std::chrono::microseconds(us); }

// How often each kind of fault is drawn, relative to the others.
struct Weights {
  uint32_t crash = 0, network = 0, hang = 0, control = 0, disk = 0, people = 0, program = 0;
};

const std::map<std::string, Weights>& Table() {
  static const std::map<std::string, Weights> kTable = {
      {"all", {6, 4, 4, 4, 1, 3, 2}},     {"crash", {1, 0, 0, 0, 0, 0, 0}},   {"network", {1, 6, 0, 1, 0, 0, 0}},
      {"hang", {1, 0, 6, 0, 0, 0, 1}},    {"control", {2, 1, 0, 6, 2, 0, 0}}, {"operators", {2, 0, 0, 1, 0, 6, 0}},
      {"program", {1, 0, 1, 0, 0, 0, 6}}, {"none", {0, 0, 0, 0, 0, 0, 0}}};
  return kTable;
}

class Planner {
 public:
  Planner(uint64_t seed, const Shape& shape) : random_(Mix64(seed ^ 0x5eed)), shape_(shape) {
    plan_.profile = shape.profile;
    MakeJob(seed);
  }

  RunPlan Make() {
    const Weights& w = Table().at(shape_.profile);
    const uint32_t total = w.crash + w.network + w.hang + w.control + w.disk + w.people + w.program;
    const Time quiet = Time{} + Ms(2000 + random_.Below(6000));
    Time now = Time{} + Ms(random_.Below(1500));
    while (total > 0 && now < quiet) {
      // Many at once, many in the middle of what the one before has led to, and some in peace.
      const uint64_t kind = random_.Below(3);
      now = now + (kind == 0 ? Us(random_.Below(2000)) : kind == 1 ? Ms(random_.Below(40)) : Ms(random_.Below(800)));
      uint64_t draw = random_.Below(total);
      const auto take = [&](uint32_t weight) {
        const bool mine = draw < weight;
        draw = mine ? UINT64_MAX : draw - weight;
        return mine;
      };
      if (take(w.crash)) {
        Crash(now);
      } else if (take(w.network)) {
        CutNetwork(now);
      } else if (take(w.hang)) {
        HangUp(now);
      } else if (take(w.control)) {
        Coordinator(now);
      } else if (take(w.disk)) {
        Do(now, "fail-store");
        Do(now + Ms(random_.Below(4000)), "mend-store");
      } else if (take(w.people)) {
        Operate(now);
      } else {
        Program(now);
      }
    }
    std::stable_sort(plan_.deeds.begin(), plan_.deeds.end(),
                     [](const Deed& a, const Deed& b) { return a.when < b.when; });
    return std::move(plan_);
  }

 private:
  void MakeJob(uint64_t seed) {
    JobSpec& spec = plan_.spec;
    spec.job = "sim";
    spec.command = {"train"};
    spec.nodes = shape_.nodes != 0 ? shape_.nodes : static_cast<uint32_t>(2 + random_.Below(4));
    spec.spares = static_cast<uint32_t>(random_.Below(3) + spec.nodes / 16);
    spec.workers_per_node = shape_.ranks != 0 ? shape_.ranks / spec.nodes : static_cast<uint32_t>(1 + random_.Below(2));
    spec.seed = seed;
    spec.timeouts.hang = std::chrono::seconds(3);
    spec.timeouts.collective = Ms(200 + random_.Below(2000));
    spec.timeouts.park = std::chrono::seconds(5);
    spec.timeouts.freeze = Ms(1000 + random_.Below(2000));
    spec.timeouts.join = std::chrono::seconds(20);
    spec.timeouts.finish = std::chrono::seconds(20);
    spec.limits.restarts = static_cast<uint32_t>(random_.Below(8));
    spec.limits.recoveries = 1000;
    spec.worker_to_spare = random_.OneIn(4);
    Options& options = plan_.options;
    options.seed = seed;
    options.steps = random_.OneIn(10) ? 2000 : 30 + random_.Below(100);
    options.compute = Ms(1 + random_.Below(60));
    options.update = Ms(1 + random_.Below(10));
    options.start = Ms(20 + random_.Below(600));
    options.chunk = Us(200 + random_.Below(6000));
    options.drift = random_.OneIn(2);
  }

  void Do(Time when, const std::string& line) { plan_.deeds.push_back({when, line}); }
  std::string Node() { return "node-" + std::to_string(random_.Below(plan_.spec.nodes + plan_.spec.spares)); }
  std::string Rank() { return std::to_string(random_.Below(plan_.spec.nodes * plan_.spec.workers_per_node)); }
  Duration Later(uint64_t ms) { return Ms(1 + random_.Below(ms)); }

  void Crash(Time now) {
    const std::string node = Node();
    switch (random_.Below(5)) {
      case 0: return Do(now, "kill-rank " + Rank());
      case 1: return Do(now, "kill-agent " + node);
      case 2: return Do(now, "start-node " + node);
      default:
        Do(now, "kill-node " + node);
        // A quick restart under the same name, or one at leisure.
        if (random_.OneIn(2)) Do(now + Later(random_.OneIn(2) ? 30 : 3000), "start-node " + node);
    }
  }

  void CutNetwork(Time now) {
    static const char* kCuts[] = {"cut-link ", "cut-link ", "cut-peers ", "cut-coordinator ", "cut-out ", "cut-in "};
    const std::string node = Node();
    if (random_.OneIn(12)) {
      Do(now, "cut-coordinators");
      for (uint32_t i = 0; i < plan_.spec.nodes + plan_.spec.spares; ++i) {
        Do(now + Later(random_.OneIn(2) ? 500 : 8000), "heal-link node-" + std::to_string(i));
      }
      return;
    }
    Do(now, kCuts[random_.Below(6)] + node);
    if (!random_.OneIn(4)) Do(now + Later(random_.OneIn(2) ? 300 : 8000), "heal-link " + node);
  }

  void HangUp(Time now) {
    const std::string rank = Rank(), node = Node();
    switch (random_.Below(6)) {
      case 0: return Do(now, "deafen-rank " + rank);
      case 1:
        // If all hang nobody waits, which looks like one slow step.
        if (!std::exchange(hung_, true)) Do(now, "hang-rank " + rank);
        return;
      case 2:
        if (random_.OneIn(4)) Do(now, "stick-rank " + rank);
        return;
      case 3:
      case 4:
        Do(now, "sleep-rank " + rank);
        if (random_.OneIn(2)) Do(now + Later(3000), "wake-rank " + rank);
        return;
      default: Do(now, "sleep-agent " + node); Do(now + Later(random_.OneIn(2) ? 400 : 5000), "wake-agent " + node);
    }
  }

  void Coordinator(Time now) {
    const Time later = now + Later(random_.OneIn(2) ? 100 : 2000);
    switch (random_.Below(5)) {
      case 0:
      case 1: Do(now, "crash-coordinator " + std::to_string(1 + random_.Below(12))); break;
      case 2: Do(now, "kill-coordinator"); break;
      case 3: return Do(now, "pause-coordinator " + std::to_string(random_.Below(3000)));
      default:
        if (!random_.OneIn(3)) return;
        Do(now, "kill-coordinator");
        Do(now + Us(1), "lose-database");
        for (int i = 0; i < 3; ++i) Do(later + Later(4000), "adopt");
    }
    Do(later, "start-coordinator");
  }

  void Operate(Time now) {
    const std::string node = Node();
    switch (random_.Below(4)) {
      case 0:
        Do(now, "leave-node " + node);
        if (random_.OneIn(2)) Do(now + Later(2000), "start-node " + node);
        return;
      case 1: return Do(now, "adopt");
      default: return Do(now, "failback " + node);
    }
  }

  void Program(Time now) {
    switch (random_.Below(4)) {
      case 0: return Do(now, "tear-rank " + Rank());
      case 1:
        // Twice by the same rank on two nodes is the program's own fault, and ends the job.
        if (!std::exchange(exited_, true)) Do(now, "exit-rank " + Rank() + " " + std::to_string(random_.Below(2)));
        return;
      default: return Do(now, "break-rank " + Rank());
    }
  }

  Random random_;
  const Shape shape_;
  RunPlan plan_;
  bool hung_ = false, exited_ = false;
};

}  // namespace

std::vector<std::string> Profiles() {
  std::vector<std::string> names;
  for (const auto& [name, weights] : Table()) names.push_back(name);
  return names;
}

Result<RunPlan> MakePlan(uint64_t seed, const Shape& shape) {
  if (!Table().count(shape.profile)) {
    std::string known;
    for (const std::string& name : Profiles()) known += (known.empty() ? "" : ", ") + name;
    return Invalid("there is no profile of faults '" + shape.profile + "'; there are " + known);
  }
  if (shape.ranks != 0 && (shape.nodes == 0 || shape.ranks % shape.nodes != 0)) {
    return Invalid("--ranks must be a multiple of --nodes");
  }
  return Planner(seed, shape).Make();
}

// ---- As text -------------------------------------------------------------------------------------------------

namespace {

struct Field {
  const char* name;
  uint64_t (*get)(const RunPlan&);
  void (*set)(RunPlan*, uint64_t);
};

template <class T>
uint64_t Count(T duration) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

#define LOCUM_DURATION(name, where)                                                                         \
  {                                                                                                         \
    name, [](const RunPlan& p) { return Count(p.where); }, [](RunPlan* p, uint64_t v) { p->where = Us(v); } \
  }
#define LOCUM_NUMBER(name, where)                                                     \
  {                                                                                   \
    name, [](const RunPlan& p) { return static_cast<uint64_t>(p.where); },            \
        [](RunPlan* p, uint64_t v) { p->where = static_cast<decltype(p->where)>(v); } \
  }

const Field kFields[] = {LOCUM_NUMBER("seed", options.seed),
                         LOCUM_NUMBER("nodes", spec.nodes),
                         LOCUM_NUMBER("spares", spec.spares),
                         LOCUM_NUMBER("per-node", spec.workers_per_node),
                         LOCUM_NUMBER("steps", options.steps),
                         LOCUM_NUMBER("drift", options.drift),
                         LOCUM_NUMBER("restarts", spec.limits.restarts),
                         LOCUM_NUMBER("recoveries", spec.limits.recoveries),
                         LOCUM_NUMBER("to-spare", spec.worker_to_spare),
                         LOCUM_DURATION("compute-us", options.compute),
                         LOCUM_DURATION("update-us", options.update),
                         LOCUM_DURATION("start-us", options.start),
                         LOCUM_DURATION("chunk-us", options.chunk),
                         LOCUM_DURATION("collective-us", spec.timeouts.collective),
                         LOCUM_DURATION("freeze-us", spec.timeouts.freeze),
                         LOCUM_DURATION("park-us", spec.timeouts.park),
                         LOCUM_DURATION("join-us", spec.timeouts.join),
                         LOCUM_DURATION("finish-us", spec.timeouts.finish),
                         LOCUM_DURATION("hang-us", spec.timeouts.hang)};

#undef LOCUM_DURATION
#undef LOCUM_NUMBER

}  // namespace

std::string ToScript(const RunPlan& plan) {
  std::string text = "cluster";
  for (const Field& field : kFields) text += std::string(" ") + field.name + "=" + std::to_string(field.get(plan));
  text += "\n";
  for (const Deed& deed : plan.deeds) text += std::to_string(deed.when.ns) + " " + deed.line + "\n";
  return text;
}

Result<RunPlan> FromScript(const std::string& text) {
  RunPlan plan;
  plan.profile = "script";
  plan.spec.job = "sim";
  plan.spec.command = {"train"};
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string where = "line " + std::to_string(number) + ": ";
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "cluster") {
      while (words >> word) {
        const size_t eq = word.find('=');
        const auto field = std::find_if(std::begin(kFields), std::end(kFields),
                                        [&](const Field& f) { return word.substr(0, eq) == f.name; });
        if (eq == std::string::npos || field == std::end(kFields))
          return Invalid(where + "'" + word + "' is no setting");
        field->set(&plan, std::strtoull(word.c_str() + eq + 1, nullptr, 10));
      }
      plan.spec.seed = plan.options.seed;
      continue;
    }
    char* end = nullptr;
    const uint64_t when = std::strtoull(word.c_str(), &end, 10);
    std::string rest;
    std::getline(words >> std::ws, rest);
    if (end == word.c_str() || *end != '\0') return Invalid(where + "'" + word + "' is no time in nanoseconds");
    if (const std::string wrong = CheckLine(rest); !wrong.empty()) return Invalid(where + wrong);
    plan.deeds.push_back({Time{static_cast<int64_t>(when)}, rest});
  }
  if (plan.spec.nodes == 0 || plan.spec.workers_per_node == 0) return Invalid("a cluster has nodes and workers");
  std::stable_sort(plan.deeds.begin(), plan.deeds.end(), [](const Deed& a, const Deed& b) { return a.when < b.when; });
  return plan;
}

}  // namespace locum::sim
