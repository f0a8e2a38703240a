// XXH3 for one instruction set; see hash_kernels.h. CMakeLists.txt gives this file its flags.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "state/hash_kernels.h"

namespace locum {

uint64_t Hash64Baseline(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace locum
