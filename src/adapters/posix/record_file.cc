#include "adapters/posix/record_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace locum {
namespace {

bool NoRoom(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

Status Allocate(int fd, uint64_t offset, uint64_t bytes, const std::string& path) {
  int error;
  do {
    error = ::posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (NoRoom(error)) {
    // What was allocated before the disk was full would only take the room from others.
    [[maybe_unused]] int cut = ::ftruncate(fd, static_cast<off_t>(offset));
    return Unavailable("'" + path + "': " + std::strerror(error));
  }
  return error ? ErrnoStatus(error, "allocating '" + path + "'") : OkStatus();
}

}  // namespace

Result<std::unique_ptr<RecordFile>> RecordFile::Create(const std::string& path, std::string_view head,
                                                       uint64_t record_bytes) {
  LOCUM_CHECK(head.size() <= kHeadBytes && record_bytes > 0 && kSegmentBytes % record_bytes == 0);
  std::unique_ptr<RecordFile> file(new RecordFile);
  file->path_ = path;
  file->record_bytes_ = record_bytes;
  file->per_segment_ = kSegmentBytes / record_bytes;
  file->fd_ = OwnedFd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file->fd_.valid()) {
    if (NoRoom(errno)) return file;
    return ErrnoStatus(errno, "making '" + path + "'");
  }
  const Status allocated = Allocate(file->fd_.get(), 0, kHeadBytes, path);
  if (allocated.code() == Code::kUnavailable) return file;
  LOCUM_RETURN_IF_ERROR(allocated);
  Result<Mapping> mapped = Mapping::Shared(file->fd_.get(), 0, kHeadBytes);
  if (!mapped.ok()) return mapped.status();
  file->head_ = std::move(*mapped);
  std::memcpy(file->head_.data(), head.data(), head.size());
  const Status grown = file->Grow();
  if (!grown.ok() && grown.code() != Code::kUnavailable) return grown;
  return file;
}

void* RecordFile::Next() {
  const uint64_t segment = next_ / per_segment_;
  if (segment >= segments_.load(std::memory_order_acquire)) {
    ++dropped_;
    return nullptr;
  }
  return mappings_[segment].data() + next_++ % per_segment_ * record_bytes_;
}

bool RecordFile::WantsGrowth() const {
  return next_ + per_segment_ / 2 >= segments_.load(std::memory_order_relaxed) * per_segment_;
}

Status RecordFile::Grow() {
  const uint64_t segment = segments_.load(std::memory_order_relaxed);
  if (segment == kMaxSegments || !head_.data()) return Unavailable("'" + path_ + "' cannot grow");
  const uint64_t offset = kHeadBytes + segment * kSegmentBytes;
  LOCUM_RETURN_IF_ERROR(Allocate(fd_.get(), offset, kSegmentBytes, path_));
  Result<Mapping> mapped = Mapping::Shared(fd_.get(), offset, kSegmentBytes);
  if (!mapped.ok()) return mapped.status();
  mappings_[segment] = std::move(*mapped);
  segments_.store(segment + 1, std::memory_order_release);
  return OkStatus();
}

}  // namespace locum
