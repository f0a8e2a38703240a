#include "adapters/posix/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace locum {

Mapping::~Mapping() {
  if (data_) ::munmap(data_, bytes_);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<Mapping> Mapping::Shared(int fd, uint64_t offset, size_t bytes) {
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return ErrnoStatus(errno, "mapping " + std::to_string(bytes) + " bytes");
  ::madvise(data, bytes, MADV_DONTFORK);
  Mapping mapping;
  mapping.data_ = data;
  mapping.bytes_ = bytes;
  return mapping;
}

Result<Mapping> Mapping::Private(size_t bytes) {
  Mapping mapping;
  if (bytes == 0) return mapping;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Unavailable("no memory for " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  }
  ::madvise(data, bytes, MADV_DONTFORK);
  ::madvise(data, bytes, MADV_HUGEPAGE);
  mapping.data_ = data;
  mapping.bytes_ = bytes;
  return mapping;
}

Result<OwnedFd> MakeSharedMemory(const char* name, size_t bytes) {
  OwnedFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return ErrnoStatus(errno, "ftruncate");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "sealing shared memory");
  }
  return fd;
}

Status CheckSharedMemory(int fd, size_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "fstat");
  if (static_cast<uint64_t>(info.st_size) < bytes) {
    return Invalid("shared memory of " + std::to_string(info.st_size) + " bytes, needed are " + std::to_string(bytes));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) return Invalid("shared memory that may shrink");
  return OkStatus();
}

}  // namespace locum
