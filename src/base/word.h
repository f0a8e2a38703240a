// The atomic word of a worker: what generation it belongs to, which state it holds, and whether that state
// may change. It is the whole of the update window (see docs/protocol.md):
//
//   OPEN(s)     state s is complete; the trainer may begin an update
//   UPDATING(s) the trainer is turning state s into s+1; no holding
//   FROZEN(s)   state s is complete and will not change until the generation is left
//   TORN(s)     an update of s failed half-way; no holding, ever
//
// Only compare-and-swap from OPEN leads to UPDATING (by Commit) or FROZEN (by the control thread), so one
// of the two wins and the other sees it.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/ids.h"

namespace locum {

enum class WordState : uint8_t { kOpen = 0, kUpdating = 1, kFrozen = 2, kTorn = 3 };

inline constexpr uint64_t kMaxGeneration = (1ull << 20) - 1;  // a million memberships
inline constexpr uint64_t kMaxTerm = INT64_MAX;               // what a database holds
inline constexpr uint64_t kMaxStep = (1ull << 42) - 1;        // 139 years of steps of a millisecond

struct Word {
  Generation generation;
  Step step;
  WordState state = WordState::kOpen;

  friend constexpr auto operator<=>(const Word&, const Word&) = default;

  constexpr uint64_t Pack() const {
    LOCUM_CHECK(generation.value <= kMaxGeneration && step.value <= kMaxStep);
    return generation.value << 44 | step.value << 2 | static_cast<uint64_t>(state);
  }
  static constexpr Word Unpack(uint64_t bits) {
    return {Generation(bits >> 44), Step(bits >> 2 & kMaxStep), static_cast<WordState>(bits & 3)};
  }
};

constexpr const char* WordStateName(WordState state) {
  switch (state) {
    case WordState::kOpen: return "open";
    case WordState::kUpdating: return "updating";
    case WordState::kFrozen: return "frozen";
    case WordState::kTorn: return "torn";
  }
  return "invalid";
}

}  // namespace locum
