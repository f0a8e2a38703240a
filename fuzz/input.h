// An input taken apart from its front into numbers and bytes; zeroes once it is used up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/word.h"

class FuzzInput {
 public:
  explicit FuzzInput(std::string_view in) : in_(in) {}

  bool done() const { return in_.empty(); }
  uint8_t Byte() {
    if (in_.empty()) return 0;
    const auto v = static_cast<uint8_t>(in_.front());
    in_.remove_prefix(1);
    return v;
  }
  uint64_t Below(uint64_t n) { return n <= 256 ? Byte() % n : Raw(4) % n; }
  bool Bool() { return (Byte() & 1) != 0; }
  // Small, at the edge of a range, or any.
  uint64_t Number() {
    static constexpr uint64_t kEdges[] = {UINT64_MAX, INT64_MAX, UINT32_MAX, INT32_MAX,  locum::kMaxStep,  1ull << 63,
                                          1ull << 31, 65535,     1ull << 20, 1ull << 32, 3600'000'000'000, 1'000'000};
    const uint8_t kind = Byte();
    if (kind < 192) return kind;
    if (kind < 228) return kEdges[kind % std::size(kEdges)] - (kind & 1);
    if (kind < 236) return locum::kMaxGeneration - (kind & 3);
    return Raw(8);
  }
  std::string Bytes(size_t most) {
    const auto wanted = static_cast<size_t>(Raw(2));
    const size_t size = std::min({most, in_.size(), wanted});
    std::string v(in_.substr(0, size));
    in_.remove_prefix(size);
    return v;
  }
  std::string Rest() { return std::string(std::exchange(in_, {})); }

 private:
  uint64_t Raw(size_t size) {
    uint64_t v = 0;
    size = std::min(size, in_.size());
    std::memcpy(&v, in_.data(), size);
    in_.remove_prefix(size);
    return v;
  }
  std::string_view in_;
};
