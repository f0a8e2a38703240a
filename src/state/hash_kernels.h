// XXH3 compiled once for each instruction set. The files behind these functions include nothing of the
// standard library: an inline function of it, compiled there with wider instructions, could be the copy that
// the linker keeps for everyone.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace locum {

uint64_t Hash64Baseline(const void* data, size_t bytes);
#if defined(__x86_64__)
uint64_t Hash64Avx2(const void* data, size_t bytes);
uint64_t Hash64Avx512(const void* data, size_t bytes);
#endif

}  // namespace locum
