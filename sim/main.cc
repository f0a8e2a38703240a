// locum-sim: the real decisions through millions of faults, from seeds. See --help.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "sim/run.h"

namespace locum::sim {
namespace {

struct Args {
  std::string seeds = "1..1000", script;
  Shape shape;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool shrink = false, notes = false, hashes = false;
};

struct Totals {
  std::mutex mutex;
  uint64_t runs = 0, faults = 0, generations = 0, events = 0, core_events = 0, failed = 0;
};

std::string Again(const Args& args, uint64_t seed) {
  std::string text = "locum-sim --seeds " + std::to_string(seed);
  if (args.shape.nodes != 0) text += " --nodes " + std::to_string(args.shape.nodes);
  if (args.shape.ranks != 0) text += " --ranks " + std::to_string(args.shape.ranks);
  if (args.shape.profile != "all") text += " --faults " + args.shape.profile;
  return text;
}

void Tell(const Args& args, const RunPlan& plan, const RunResult& result, const std::string& again) {
  if (args.hashes)
    std::printf("%llu %016llx\n", static_cast<unsigned long long>(plan.options.seed),
                static_cast<unsigned long long>(result.trace));
  if (args.notes) {
    for (const TimedNote& note : result.notes) std::printf("%s\n", ToText(note).c_str());
  }
  if (result.ok) return;
  std::printf("seed %llu broke a law: %s\n  at %lld us: %s\n%s  again: %s --notes\n",
              static_cast<unsigned long long>(plan.options.seed), result.law.c_str(),
              static_cast<long long>(result.when.ns / 1000), result.what.c_str(), Trail(result).c_str(), again.c_str());
  if (!args.shrink) return;
  std::printf("  smallest script that breaks it (locum-sim --script FILE):\n%s",
              ToScript(Shrink(plan, result.law)).c_str());
}

void Add(Totals* totals, const RunResult& result) {
  ++totals->runs;
  totals->faults += result.faults;
  totals->generations += result.generations;
  totals->events += result.events;
  totals->core_events += result.core_events;
  totals->failed += !result.ok;
}

int Summary(const Totals& totals, double seconds, unsigned jobs) {
  std::printf("%llu runs, %llu faults, %llu generations, %llu events (%llu of the coordinator), %llu failed\n",
              static_cast<unsigned long long>(totals.runs), static_cast<unsigned long long>(totals.faults),
              static_cast<unsigned long long>(totals.generations), static_cast<unsigned long long>(totals.events),
              static_cast<unsigned long long>(totals.core_events), static_cast<unsigned long long>(totals.failed));
  std::fprintf(stderr, "%.1f s on %u threads; a second and thread: %.0f events, a minute and thread: %.0f faults\n",
               seconds, jobs, static_cast<double>(totals.events) / seconds / jobs,
               static_cast<double>(totals.faults) / seconds / jobs * 60);
  return totals.failed == 0 ? 0 : 1;
}

int RunSeeds(const Args& args, uint64_t first, uint64_t last) {
  Totals totals;
  std::atomic<uint64_t> next = first;
  const auto begin = std::chrono::steady_clock::now();
  const bool bar = ::isatty(2) == 1 && last > first;
  const auto work = [&] {
    for (uint64_t seed = next++; seed <= last; seed = next++) {
      const auto plan = MakePlan(seed, args.shape);
      const RunResult result = Run(*plan);
      const std::lock_guard lock(totals.mutex);
      Add(&totals, result);
      Tell(args, *plan, result, Again(args, seed));
      if (bar && totals.runs % 64 == 0) {
        std::fprintf(stderr, "\r%3llu %%  %llu of %llu  failed %llu ",
                     static_cast<unsigned long long>(100 * totals.runs / (last - first + 1)),
                     static_cast<unsigned long long>(totals.runs), static_cast<unsigned long long>(last - first + 1),
                     static_cast<unsigned long long>(totals.failed));
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < args.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (bar) std::fprintf(stderr, "\r\033[K");
  return Summary(totals, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), args.jobs);
}

int RunScript(const Args& args) {
  std::ifstream file(args.script);
  if (!file) {
    std::fprintf(stderr, "locum-sim: cannot open %s\n", args.script.c_str());
    return 2;
  }
  std::stringstream text;
  text << file.rdbuf();
  const auto plan = FromScript(text.str());
  if (!plan.ok()) {
    std::fprintf(stderr, "locum-sim: %s: %s\n", args.script.c_str(), plan.status().message().c_str());
    return 2;
  }
  const RunResult result = Run(*plan);
  Tell(args, *plan, result, "locum-sim --script " + args.script);
  std::printf("%u faults, %llu generations, %s\n", result.faults, static_cast<unsigned long long>(result.generations),
              result.ok ? "every law was kept" : "a law was broken");
  return result.ok ? 0 : 1;
}

// "A..B" or one number.
bool ParseSeeds(const std::string& text, uint64_t* first, uint64_t* last) {
  char* end = nullptr;
  *first = *last = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str()) return false;
  if (std::string(end).rfind("..", 0) == 0) {
    const char* second = end + 2;
    *last = std::strtoull(second, &end, 10);
    if (end == second) return false;
  }
  return *end == '\0' && *first <= *last;
}

int Main(int argc, char** argv) {
  Args args;
  CLI::App app(
      "Runs whole simulated clusters, with the real decisions of coordinator, agents and keepers, through random "
      "faults.");
  app.footer("Exit status: 0 when every law was kept, 1 when one was broken, 2 for bad use.");
  std::string profiles;
  for (const std::string& name : Profiles()) profiles += (profiles.empty() ? "" : ", ") + name;
  app.add_option("--seeds", args.seeds, "A..B, or one seed (1..1000)");
  app.add_option("--nodes", args.shape.nodes, "nodes that train, up to 4096; the seed says, 2 to 5")
      ->check(CLI::Range(1u, 4096u));
  app.add_option("--ranks", args.shape.ranks, "ranks, a multiple of --nodes; the seed says, 1 or 2 a node")
      ->check(CLI::Range(1u, 65536u));
  app.add_option("--faults", args.shape.profile, "which faults: " + profiles);
  app.add_option("--jobs", args.jobs, "threads")->check(CLI::Range(1u, 1024u));
  app.add_option("--script", args.script, "runs this script instead, as --shrink writes it");
  app.add_flag("--shrink", args.shrink, "for a broken law, finds a smaller script that breaks it");
  app.add_flag("--notes", args.notes, "shows the coordinator's history of each run");
  app.add_flag("--hashes", args.hashes, "shows a hash of each run's trace");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!args.script.empty()) return RunScript(args);
  uint64_t first = 0, last = 0;
  if (!ParseSeeds(args.seeds, &first, &last)) {
    std::fprintf(stderr, "locum-sim: --seeds '%s' is neither A..B nor a number\n", args.seeds.c_str());
    return 2;
  }
  if (const auto plan = MakePlan(first, args.shape); !plan.ok()) {
    std::fprintf(stderr, "locum-sim: %s\n", plan.status().message().c_str());
    return 2;
  }
  return RunSeeds(args, first, last);
}

}  // namespace
}  // namespace locum::sim

int main(int argc, char** argv) { return locum::sim::Main(argc, argv); }
