// Runs a fuzz target without a fuzzer, the same inputs each time: every seed, each of its beginnings, each byte
// replaced, and random mixtures from a fixed seed. Arguments are files to run besides, or folders of them; with
// --write-seeds DIR it only writes the seeds there, for a fuzzer to begin with.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/random.h"
#include "seeds.h"

// A target without seeds of its own gets the least: every first byte.
__attribute__((weak)) std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (int c = 0; c < 256; ++c) seeds.push_back(static_cast<char>(c) + std::string(64, '\0'));
  return seeds;
}

__attribute__((weak)) int FuzzMixtures() { return 20'000; }

namespace {

constexpr size_t kMaxPositions = 2048;  // of one seed

size_t inputs = 0;

void Run(const std::string& input) {
  ++inputs;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

void RunFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  Run(text.str());
}

void RunNeighbours(const std::string& seed) {
  Run(seed);
  Run(seed + std::string(1, '\0'));
  for (size_t i = 0; i < std::min(seed.size(), kMaxPositions); ++i) {
    Run(seed.substr(0, i));
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string changed = seed;
      changed[i] = static_cast<char>(changed[i] ^ change);
      Run(changed);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> seeds = FuzzSeeds();
  if (argc == 3 && argv[1] == std::string_view("--write-seeds")) {
    for (size_t i = 0; i < seeds.size(); ++i) {
      std::ofstream(std::string(argv[2]) + "/seed-" + std::to_string(i), std::ios::binary) << seeds[i];
    }
    return 0;
  }
  for (const std::string& seed : seeds) RunNeighbours(seed);
  locum::Random random(1);
  for (int i = 0; i < FuzzMixtures(); ++i) {
    const std::string& a = seeds[random.Below(seeds.size())];
    const std::string& b = seeds[random.Below(seeds.size())];
    std::string mixed = a.substr(0, random.Below(a.size() + 1)) + b.substr(random.Below(b.size() + 1));
    for (uint64_t n = random.Below(4); n > 0 && !mixed.empty(); --n) {
      mixed[random.Below(mixed.size())] = static_cast<char>(random.Next());
    }
    Run(mixed);
  }
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      RunFile(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) RunFile(entry.path());
  }
  std::printf("%zu inputs\n", inputs);
  return 0;
}
