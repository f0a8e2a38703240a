// locum-sim [--seed S [--notes]] [--seeds N] [--first S]: runs the coordinator's decisions through random faults.
// Exit status 1, with the command that repeats it, when a run went wrong.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/faults.h"

int main(int argc, char** argv) {
  uint64_t first = 1, count = 1000;
  bool notes = false;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&] {
      if (i + 1 >= argc) {
        std::fprintf(stderr, "locum-sim: %s needs a number\n", argv[i]);
        std::exit(2);
      }
      return std::strtoull(argv[++i], nullptr, 10);
    };
    if (std::strcmp(argv[i], "--seed") == 0) {
      first = number();
      count = 1;
    } else if (std::strcmp(argv[i], "--seeds") == 0) {
      count = number();
    } else if (std::strcmp(argv[i], "--first") == 0) {
      first = number();
    } else if (std::strcmp(argv[i], "--notes") == 0) {
      notes = true;
    } else {
      std::fprintf(stderr, "usage: locum-sim [--seed S [--notes]] [--seeds N] [--first S]\n");
      return 2;
    }
  }
  uint64_t faults = 0, generations = 0, failed = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const locum::sim::RunResult result = locum::sim::RunWithFaults(seed);
    faults += result.faults;
    generations += result.generations;
    if (notes) {
      for (const auto& note : result.notes) std::printf("%s\n", locum::sim::ToText(note).c_str());
    }
    if (result.ok) continue;
    ++failed;
    std::printf("seed %llu: %s\n  repeat: locum-sim --seed %llu --notes\n", static_cast<unsigned long long>(seed),
                result.what.c_str(), static_cast<unsigned long long>(seed));
  }
  std::printf("%llu runs, %llu faults, %llu generations, %llu failed\n", static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(faults), static_cast<unsigned long long>(generations),
              static_cast<unsigned long long>(failed));
  return failed == 0 ? 0 : 1;
}
