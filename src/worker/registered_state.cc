#include "worker/registered_state.h"

#include <cstring>

namespace locum {

std::vector<uint64_t> ChunkHashes::All() const {
  std::vector<uint64_t> all(hashes_.size());
  for (uint64_t i = 0; i < all.size(); ++i) LOCUM_CHECK(Get(i, &all[i]));
  return all;
}

Status RegisteredState::AddMemory(const Shard& shard, void* data) {
  if (!data && shard.bytes > 0) return Invalid("shard '" + shard.name + "' has no memory: data is NULL");
  LOCUM_RETURN_IF_ERROR(layout_.Add(shard));
  Access access;
  access.data = static_cast<uint8_t*>(data);
  access_.push_back(std::move(access));
  return OkStatus();
}

Status RegisteredState::AddCallbacks(const Shard& shard, locum_read_fn read, locum_write_fn write, void* context) {
  if (!read || !write) return Invalid("shard '" + shard.name + "' needs both a read and a write function");
  LOCUM_RETURN_IF_ERROR(layout_.Add(shard));
  Access access;
  access.read = read;
  access.write = write;
  access.context = context;
  access.one_at_a_time = std::make_unique<std::mutex>();
  access_.push_back(std::move(access));
  return OkStatus();
}

Result<const uint8_t*> RegisteredState::Read(const Chunk& chunk, std::vector<uint8_t>* scratch) const {
  const Access& access = access_[chunk.shard];
  if (!access.read) return static_cast<const uint8_t*>(access.data + chunk.offset);
  scratch->resize(kChunkBytes);
  std::lock_guard<std::mutex> lock(*access.one_at_a_time);
  if (const int rc = access.read(access.context, chunk.offset, scratch->data(), chunk.bytes)) {
    return Internal("the program's read function of shard '" + layout_.shards()[chunk.shard].name + "' gave " +
                    std::to_string(rc) + " at offset " + std::to_string(chunk.offset));
  }
  return static_cast<const uint8_t*>(scratch->data());
}

uint8_t* RegisteredState::Direct(const Chunk& chunk) const {
  const Access& access = access_[chunk.shard];
  return access.read ? nullptr : access.data + chunk.offset;
}

Status RegisteredState::Write(const Chunk& chunk, const uint8_t* bytes) const {
  const Access& access = access_[chunk.shard];
  if (!access.write) {
    std::memcpy(access.data + chunk.offset, bytes, chunk.bytes);
    return OkStatus();
  }
  std::lock_guard<std::mutex> lock(*access.one_at_a_time);
  if (const int rc = access.write(access.context, chunk.offset, bytes, chunk.bytes)) {
    return Internal("the program's write function of shard '" + layout_.shards()[chunk.shard].name + "' gave " +
                    std::to_string(rc) + " at offset " + std::to_string(chunk.offset));
  }
  return OkStatus();
}

}  // namespace locum
