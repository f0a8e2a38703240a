#include "state/layout.h"

#include <algorithm>

#include "base/codec.h"
#include "state/hash.h"

namespace locum {

Status Layout::Add(const Shard& shard) {
  if (shard.name.empty() || shard.name.size() > kMaxShardName) {
    return Invalid("shard '" + shard.name.substr(0, 64) + "': a name has 1 to " + std::to_string(kMaxShardName) +
                   " bytes, this one has " + std::to_string(shard.name.size()));
  }
  if (shards_.size() >= kMaxShards) {
    return Invalid("shard '" + shard.name + "': more than " + std::to_string(kMaxShards) +
                   " shards; register several tensors of one buffer as one shard");
  }
  if (shard.bytes > kMaxStateBytes - bytes_) {
    return Invalid("shard '" + shard.name + "': the state would be larger than " + std::to_string(kMaxStateBytes) +
                   " bytes; is its size of " + std::to_string(shard.bytes) + " bytes right?");
  }
  if (shard.group != kGroupAll) {
    return Invalid("shard '" + shard.name + "': replication group '" + shard.group +
                   "' is not supported yet; only state that is equal on every rank is, group 'all'");
  }
  if (!names_.insert(shard.name).second) {
    return Invalid("shard '" + shard.name + "' is registered twice; names are unique");
  }
  shards_.push_back(shard);
  first_chunk_.push_back(chunks_);
  first_byte_.push_back(bytes_);
  bytes_ += shard.bytes;
  chunks_ += (shard.bytes + kChunkBytes - 1) / kChunkBytes;
  return OkStatus();
}

Chunk Layout::At(uint64_t index) const {
  LOCUM_CHECK(index < chunks_);
  // The last shard that begins at or before the chunk; shards without bytes share their begin with the next.
  const auto after = std::upper_bound(first_chunk_.begin(), first_chunk_.end(), index);
  const size_t shard = static_cast<size_t>(after - first_chunk_.begin()) - 1;
  Chunk chunk;
  chunk.shard = static_cast<uint32_t>(shard);
  chunk.offset = (index - first_chunk_[shard]) * kChunkBytes;
  chunk.bytes = static_cast<uint32_t>(std::min(kChunkBytes, shards_[shard].bytes - chunk.offset));
  chunk.position = first_byte_[shard] + chunk.offset;
  return chunk;
}

uint64_t Layout::Hash() const {
  Writer w;
  w.U64(kChunkBytes);
  for (const Shard& shard : shards_) {
    w.Str(shard.name);
    w.U64(shard.bytes);
    w.Str(shard.group);
  }
  return Hash64(w.data());
}

uint64_t StateHash(uint64_t layout_hash, const std::vector<uint64_t>& chunk_hashes) {
  Writer w;
  w.U64(layout_hash);
  w.U64(chunk_hashes.size());
  w.Raw(chunk_hashes.data(), chunk_hashes.size() * sizeof(uint64_t));
  return Hash64(w.data());
}

}  // namespace locum
