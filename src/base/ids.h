// Strong types for everything that is counted or named, so that a step is never taken for a rank.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>

namespace locum {

template <class Tag, class T>
struct Strong {
  T value{};

  constexpr Strong() = default;
  constexpr explicit Strong(T v) : value(v) {}
  friend constexpr auto operator<=>(const Strong&, const Strong&) = default;
  constexpr Strong Next() const { return Strong(value + 1); }
};

using Rank = Strong<struct RankTag, uint32_t>;                // a worker's place in the job, 0-based
using Slot = Strong<struct SlotTag, uint32_t>;                // a worker's place on its node, 0-based
using Step = Strong<struct StepTag, uint64_t>;                // state s is the state after s updates
using Generation = Strong<struct GenerationTag, uint64_t>;    // 0: none yet; the first membership is 1
using Term = Strong<struct TermTag, uint64_t>;                // grows at each start of a coordinator
using Incarnation = Strong<struct IncarnationTag, uint64_t>;  // random, never 0 for a live thing
using Bytes = Strong<struct BytesTag, uint64_t>;

using Duration = std::chrono::nanoseconds;

// Nanoseconds of CLOCK_MONOTONIC (or of a simulated clock). Only differences mean anything, except
// between processes of one machine, which share the clock.
struct Time {
  int64_t ns = 0;
  friend constexpr auto operator<=>(const Time&, const Time&) = default;
  friend constexpr Time operator+(Time t, Duration d) { return Time{t.ns + d.count()}; }
  friend constexpr Time operator-(Time t, Duration d) { return Time{t.ns - d.count()}; }
  friend constexpr Duration operator-(Time a, Time b) { return Duration(a.ns - b.ns); }
};
inline constexpr Time kNever{INT64_MAX};

inline constexpr Rank kNoRank{UINT32_MAX};

// Lower-case hexadecimal, 16 digits; the form of incarnations and hashes in logs and file names.
std::string ToHex(uint64_t value);
bool ParseHex(const std::string& text, uint64_t* value);

}  // namespace locum
