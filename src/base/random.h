// Seeded random numbers (splitmix64), the same on every machine. Decisions never draw any: what is
// random (incarnations, tokens) is drawn by a shell from the kernel and handed in.
#pragma once

#include <cstdint>

namespace locum {

// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (OOPSLA 2014), the mix of
// java.util.SplittableRandom.
constexpr uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}
  constexpr uint64_t Next() { return Mix64(state_ += 0x9e3779b97f4a7c15ull); }
  // Uniform in [0, n), n > 0, without modulo bias worth naming for n far below 2^64.
  constexpr uint64_t Below(uint64_t n) { return Next() % n; }
  constexpr bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace locum
