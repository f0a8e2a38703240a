// Mixing of 64-bit numbers (the finalizer of splitmix64), for seeds and for places in the text.
#pragma once

#include <cstdint>

namespace gpt {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

constexpr uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

constexpr uint64_t Mix(uint64_t z) { return Mix64(z + kGolden); }

}  // namespace gpt
