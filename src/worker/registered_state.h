// The trainer's registered state: its layout, how to reach each shard's bytes, and the hashes of its chunks
// while it does not change.
//
// Who may touch the bytes when is not decided here, see protocol.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "locum/locum.h"
#include "state/layout.h"

namespace locum {

// Hashes of the chunks of one frozen state, filled in by whoever reads a chunk first. All threads.
class ChunkHashes {
 public:
  explicit ChunkHashes(uint64_t chunks) : hashes_(chunks), known_(chunks) {}
  bool Get(uint64_t index, uint64_t* hash) const {
    if (!known_[index].load(std::memory_order_acquire)) return false;
    *hash = hashes_[index].load(std::memory_order_relaxed);
    return true;
  }
  void Put(uint64_t index, uint64_t hash) {
    hashes_[index].store(hash, std::memory_order_relaxed);
    known_[index].store(true, std::memory_order_release);
  }
  // All must be known.
  std::vector<uint64_t> All() const;

 private:
  std::vector<std::atomic<uint64_t>> hashes_;
  std::vector<std::atomic<bool>> known_;
};

class RegisteredState {
 public:
  Status AddMemory(const Shard& shard, void* data);
  Status AddCallbacks(const Shard& shard, locum_read_fn read, locum_write_fn write, void* context);

  const Layout& layout() const { return layout_; }

  // The chunk's bytes, in place where they are memory, else read into `scratch`.
  Result<const uint8_t*> Read(const Chunk& chunk, std::vector<uint8_t>* scratch) const;
  // Where the chunk lies in memory; null for a shard behind callbacks.
  uint8_t* Direct(const Chunk& chunk) const;
  Status Write(const Chunk& chunk, const uint8_t* bytes) const;

 private:
  struct Access {
    uint8_t* data = nullptr;
    locum_read_fn read = nullptr;
    locum_write_fn write = nullptr;
    void* context = nullptr;
    std::unique_ptr<std::mutex> one_at_a_time;  // callbacks need not be thread-safe
  };

  Layout layout_;
  std::vector<Access> access_;
};

}  // namespace locum
