// DIR itself: on what it may lie, and who holds it.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace locum {

inline constexpr const char* kLockFile = "lock";

// The name of a network or user-space file system by its statfs magic; null for any other.
const char* UnsafeFilesystem(long magic);

// The longest path of a DIR, in bytes: SQLite takes 512 for a file's path, links followed, with room for its suffixes.
inline constexpr size_t kMaxDirectoryPath = 495;
// kInvalid when the path of `dir`, which need not exist yet, is longer.
Status CheckPathLength(const std::string& dir);

// kInvalid when `dir` lies on a file system whose locks and syncs cannot be relied on, kInternal when that is full.
Status CheckFilesystem(const std::string& dir);

// What a coordinator needs to begin with; its store and its logs grow by less than this in most jobs.
inline constexpr size_t kRoomBytes = 8u << 20;
inline constexpr const char* kRoomFile = "room.tmp";  // there while it is tried
// kInvalid when `dir` has not room for kRoomBytes, or cannot be written.
Status CheckRoom(const std::string& dir);

// Held by the one coordinator of a DIR, or by the one `locum run` and handed on to its coordinator, for as long as
// either lives; the kernel lets go of it when the last process that has the descriptor ends.
class DirectoryLock {
 public:
  // kRefused when another process holds it.
  static Result<DirectoryLock> Take(const std::string& dir);
  // The lock that the parent holds, by the descriptor that was inherited from it. kInvalid when it is none on `dir`.
  static Result<DirectoryLock> Inherit(const std::string& dir, int fd);
  int fd() const { return fd_; }
  DirectoryLock(DirectoryLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace locum
