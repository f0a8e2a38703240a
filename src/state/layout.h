// The registered state's shape: shards in the order of registering, cut into chunks, so that the same layout
// hash means the same chunks everywhere. A chunk never spans two shards. State itself is not here.
//
// The chunk is small enough to stay in a core's second-level cache between being hashed and being copied to or
// from a socket, so that memory is read once.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/cluster.h"
#include "base/status.h"

namespace locum {

inline constexpr uint64_t kChunkBytes = 256u << 10;
inline constexpr uint64_t kMaxShards = 80'000;
inline constexpr uint64_t kMaxShardName = 255;
inline constexpr uint64_t kMaxStateBytes = 1ull << 46;
inline constexpr const char* kGroupAll = "all";

struct Chunk {
  uint32_t shard = 0;
  uint32_t bytes = 0;
  uint64_t offset = 0;    // within the shard
  uint64_t position = 0;  // within all shards laid end to end
};

class Layout {
 public:
  // kInvalid names the shard and what is wrong with it.
  Status Add(const Shard& shard);

  const std::vector<Shard>& shards() const { return shards_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t chunk_count() const { return chunks_; }
  // index < chunk_count().
  Chunk At(uint64_t index) const;
  // Over names, sizes, groups and the chunk size, in order.
  uint64_t Hash() const;

 private:
  std::vector<Shard> shards_;
  std::vector<uint64_t> first_chunk_;  // of each shard
  std::vector<uint64_t> first_byte_;
  std::set<std::string> names_;
  uint64_t bytes_ = 0;
  uint64_t chunks_ = 0;
};

// What replicas compare: a hash over the hashes of all chunks, in order, and the layout's.
uint64_t StateHash(uint64_t layout_hash, const std::vector<uint64_t>& chunk_hashes);

}  // namespace locum
