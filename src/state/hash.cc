#include "state/hash.h"

#include <atomic>

#include "state/hash_kernels.h"

namespace locum {
namespace {

using Kernel = uint64_t (*)(const void*, size_t);

uint64_t Choose(const void* data, size_t bytes);
std::atomic<Kernel> kernel{&Choose};

Kernel Best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return &Hash64Avx512;
  if (__builtin_cpu_supports("avx2")) return &Hash64Avx2;
#endif
  return &Hash64Baseline;
}

uint64_t Choose(const void* data, size_t bytes) {
  const Kernel best = Best();
  kernel.store(best, std::memory_order_relaxed);
  return best(data, bytes);
}

}  // namespace

uint64_t Hash64(const void* data, size_t bytes) { return kernel.load(std::memory_order_relaxed)(data, bytes); }

const char* HashKernelName() {
  const Kernel best = Best();
#if defined(__x86_64__)
  if (best == &Hash64Avx512) return "avx512";
  if (best == &Hash64Avx2) return "avx2";
#endif
  return best == &Hash64Baseline ? "baseline" : "unknown";
}

}  // namespace locum
