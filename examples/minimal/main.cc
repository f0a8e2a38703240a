// The whole use of the worker library: a data-parallel job in about 100 lines. The model is a vector of doubles with
// momentum; its "gradient" is drawn from the step and the rank, so a run's result is known to the last bit. Started
// without Locum it trains alone, as a world of one.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "group.h"
#include "hooks.h"
#include "locum/locum.hpp"

namespace {

struct Flags {
  uint64_t steps = 100, size = 1 << 20, seed = 1, step_ms = 0;
  std::set<uint64_t> deaf;  // these ranks never leave a collective that broke
  bool no_abort = false;    // no abort call, and collectives that wait in plain system calls
};

[[noreturn]] void Misused(const std::string& argument) {
  std::fprintf(stderr,
               "minimal: bad argument '%s'; use --steps N --size BYTES --seed N --step-ms MS --no-abort --deaf RANK\n",
               argument.c_str());
  std::exit(2);
}

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--no-abort") {
      flags.no_abort = true;
      continue;
    }
    uint64_t deaf = 0;
    uint64_t* field = name == "--steps"     ? &flags.steps
                      : name == "--size"    ? &flags.size
                      : name == "--seed"    ? &flags.seed
                      : name == "--step-ms" ? &flags.step_ms
                      : name == "--deaf"    ? &deaf
                                            : nullptr;
    char* end = nullptr;
    const char* value = i + 1 < argc ? argv[++i] : "";
    const uint64_t number = std::strtoull(value, &end, 10);
    if (!field || end == value || *end || value[0] == '-') Misused(name);
    *field = number;
    if (field == &deaf) flags.deaf.insert(number);
  }
  if (flags.size < 16) flags.size = 16;
  return flags;
}

double Draw(uint64_t x) {  // splitmix64, in [-1, 1)
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1;
}

struct Model {
  explicit Model(const Flags& flags) : weights(flags.size / 16), momentum(flags.size / 16), seed(flags.seed) {
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = Draw(seed + i);
  }
  // The gradient of this rank's piece of the data; what is summed over the ranks, the loss behind it.
  std::vector<double> Gradient(uint64_t data_position) const {
    std::vector<double> sum(65);
    for (size_t i = 0; i < 64; ++i) {
      const double difference = weights[i % weights.size()] - Draw(seed ^ (data_position * 64 + i));
      sum[i] = difference;
      sum[64] += difference * difference;
    }
    return sum;
  }
  void Update(const std::vector<double>& sum, uint32_t world, const std::function<void()>& half_way) {
    loss = sum[64] / world;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i == weights.size() / 2) half_way();
      momentum[i] = 0.9 * momentum[i] + sum[i % 64] / world;
      weights[i] -= 0.01 * momentum[i];
    }
  }
  uint64_t Hash() const {
    return XXH3_64bits_withSeed(weights.data(), weights.size() * sizeof(double),
                                XXH3_64bits(momentum.data(), momentum.size() * sizeof(double)));
  }
  std::vector<double> weights, momentum;
  double loss = 0;  // of the last step: state too, so that whoever holds rank 0 at the end can tell it
  uint64_t seed;
};

void Work(const Flags& flags) {
  if (flags.step_ms) std::this_thread::sleep_for(std::chrono::milliseconds(flags.step_ms));
}

void Report(uint64_t step, const Model& model) {
  std::printf("final step=%llu loss=%.17g state=%016llx\n", static_cast<unsigned long long>(step), model.loss,
              static_cast<unsigned long long>(model.Hash()));
}

void TrainAlone(const Flags& flags, Model& model) {
  for (uint64_t step = 0; step < flags.steps; ++step) {
    const std::vector<double> sum = model.Gradient(step);
    Work(flags);
    model.Update(sum, 1, [] {});
  }
  Report(flags.steps, model);
}

void Train(const Flags& flags, Model& model) {
  locum::Options options;
  options.total_steps = flags.steps;
  options.fingerprint = "size=" + std::to_string(flags.size) + "\nseed=" + std::to_string(flags.seed);
  locum::Job job(options);
  job.Register("weights", model.weights.data(), model.weights.size() * sizeof(double));
  job.Register("momentum", model.momentum.data(), model.momentum.size() * sizeof(double));
  job.Register("loss", &model.loss, sizeof model.loss);
  Group group(flags.no_abort);
  if (!flags.no_abort) job.SetAbort([&] { group.Abort(); });
  const Hooks hooks = Hooks::FromEnvironment();
  do {
    while (auto step = job.NextStep()) {
      const auto at = [&](const char* place) { hooks.At(place, step.rank, step.step); };
      if (step.regrouped) {
        if (!group.Connect(job, step)) {
          job.Broken("cannot connect");
          continue;
        }
        job.Connected();
      }
      at("forward");
      std::vector<double> sum = model.Gradient(step.data_position);
      Work(flags);
      job.EnterCollective();
      if (!group.AllReduce(sum, [&] { at("collective"); })) {
        while (flags.deaf.count(step.rank)) std::this_thread::sleep_for(std::chrono::seconds(1));
        job.Broken("all-reduce failed");
        continue;
      }
      at("reduced");
      job.ReportLoss(sum[64] / step.world_size);
      const bool committed = job.Commit(step, [&] {
        model.Update(sum, step.world_size, [&] { at("update"); });
        at("updated");
      });
      if (committed) at("committed");
    }
    if (job.Rank()) hooks.At("finish", *job.Rank(), flags.steps);
  } while (!job.Finish());
  if (job.Rank() == 0u) Report(flags.steps, model);
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags = Parse(argc, argv);
  Model model(flags);
  try {
    if (locum::Job::Available())
      Train(flags, model);
    else
      TrainAlone(flags, model);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "minimal: %s\n", e.what());
    return 1;
  }
  return 0;
}
