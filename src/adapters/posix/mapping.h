// A piece of memory mapped from a descriptor or from nowhere. Children forked without exec do not get it: they
// must not write what the worker shares with its node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "adapters/posix/owned_fd.h"
#include "base/status.h"

namespace locum {

class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;

  // Shared and writable, all pages present. `offset` is a multiple of the page size.
  static Result<Mapping> Shared(int fd, uint64_t offset, size_t bytes);
  // Zeroed private memory; kUnavailable when there is not enough. 0 bytes are fine.
  static Result<Mapping> Private(size_t bytes);

  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A memfd of `bytes` zero bytes whose size nobody can change, so that mapping it never ends in SIGBUS.
Result<OwnedFd> MakeSharedMemory(const char* name, size_t bytes);
// kInvalid unless `fd` is at least `bytes` large and cannot shrink.
Status CheckSharedMemory(int fd, size_t bytes);

}  // namespace locum
