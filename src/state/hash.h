// XXH3 with 64 bits, the checksum of chunks and of the whole state. The value does not depend on the
// instruction set; the speed does, so the widest one that this processor has is chosen at the first call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace locum {

uint64_t Hash64(const void* data, size_t bytes);
inline uint64_t Hash64(std::string_view text) { return Hash64(text.data(), text.size()); }

// "avx512", "avx2" or "baseline"; for benchmarks.
const char* HashKernelName();

}  // namespace locum
