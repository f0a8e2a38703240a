// A file of fixed-size records behind a head, mapped, that grows by segments. One thread takes records without a
// system call and without waiting: when no mapped record is free, because the disk is full or Grow is late, the
// record is dropped and counted. Blocks are allocated before they are mapped, so that writing never ends in
// SIGBUS.
//
// Next, WantsGrowth: the writing thread. Grow: one other thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "adapters/posix/mapping.h"
#include "adapters/posix/owned_fd.h"
#include "base/status.h"

namespace locum {

class RecordFile {
 public:
  static constexpr uint64_t kHeadBytes = 4096;
  static constexpr uint64_t kSegmentBytes = 4u << 20;
  static constexpr size_t kMaxSegments = 1024;  // 4 GiB; then records are dropped

  // `head` fills the beginning of the first 4096 bytes. `record_bytes` divides kSegmentBytes. A full disk is no
  // error: then there is no record to take. kInternal: the file cannot be made.
  static Result<std::unique_ptr<RecordFile>> Create(const std::string& path, std::string_view head,
                                                    uint64_t record_bytes);

  // A zeroed record, or null when it is dropped.
  void* Next();
  // More than half of a segment's worth is all that is left, or less.
  bool WantsGrowth() const;
  // Allocates and maps one more segment. kUnavailable when the disk is full.
  Status Grow();

  // The mapped head; null when the disk had no room even for it.
  uint8_t* head() const { return head_.data(); }
  uint64_t dropped() const { return dropped_; }

 private:
  RecordFile() = default;

  OwnedFd fd_;
  std::string path_;
  Mapping head_;
  std::array<Mapping, kMaxSegments> mappings_;  // Grow's
  std::atomic<uint64_t> segments_{0};           // how many of them are ready
  uint64_t record_bytes_ = 0;
  uint64_t per_segment_ = 0;
  uint64_t next_ = 0;  // the writer's: record to take
  uint64_t dropped_ = 0;
};

}  // namespace locum
