// The page that a worker shares with its node: a memfd made by the keeper, mapped by worker and agent.
// It lets a commit be seen without a system call. Everything but `stop_at` is written by the worker.
// A node reads it for display and for planned stops; a holding is never read from it (see base/word.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/word.h"

namespace locum {

inline constexpr uint64_t kPageMagic = 0x316567615043'4f4cull;  // "LOCPage1"
inline constexpr size_t kPageBytes = 4096;

struct Page {
  std::atomic<uint64_t> magic;  // written by the keeper before the page is handed out
  std::atomic<uint64_t> word;   // Word::Pack
  // A planned stop (docs/protocol.md): the worker stores `starting` and then reads `stop_at`; the agent stores
  // `stop_at` and then reads `starting`; all sequentially consistent. One of them sees the other.
  std::atomic<uint64_t> starting;
  std::atomic<uint64_t> stop_at;
  std::atomic<uint32_t> position;  // Position
  std::atomic<uint32_t> has_loss;
  std::atomic<uint64_t> loss_bits;   // of a double
  std::atomic<int64_t> position_ns;  // CLOCK_MONOTONIC of the last change of `position`
};
static_assert(sizeof(Page) <= kPageBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace locum
