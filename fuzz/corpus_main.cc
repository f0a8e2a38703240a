// Runs a fuzz target without a fuzzer, the same inputs each time: every seed, each of its beginnings, each byte
// replaced, and random mixtures from a fixed seed. Arguments are files to run besides.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/random.h"
#include "seeds.h"

// A target without seeds of its own gets the least: every first byte.
__attribute__((weak)) std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (int c = 0; c < 256; ++c) seeds.push_back(static_cast<char>(c) + std::string(64, '\0'));
  return seeds;
}

namespace {

constexpr size_t kMaxPositions = 2048;  // of one seed
constexpr int kMixtures = 20'000;

size_t inputs = 0;

void Run(const std::string& input) {
  ++inputs;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
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
  for (const std::string& seed : seeds) RunNeighbours(seed);
  locum::Random random(1);
  for (int i = 0; i < kMixtures; ++i) {
    const std::string& a = seeds[random.Below(seeds.size())];
    const std::string& b = seeds[random.Below(seeds.size())];
    std::string mixed = a.substr(0, random.Below(a.size() + 1)) + b.substr(random.Below(b.size() + 1));
    for (uint64_t n = random.Below(4); n > 0 && !mixed.empty(); --n) {
      mixed[random.Below(mixed.size())] = static_cast<char>(random.Next());
    }
    Run(mixed);
  }
  for (int i = 1; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    Run(text.str());
  }
  std::printf("%zu inputs\n", inputs);
  return 0;
}
