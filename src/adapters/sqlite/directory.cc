#include "adapters/sqlite/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

namespace locum {

const char* UnsafeFilesystem(long magic) {
  switch (static_cast<unsigned long>(magic) & 0xffffffffu) {
    case 0x6969: return "NFS";
    case 0x517B: return "SMB";
    case 0xFF534D42: return "CIFS";
    case 0xFE534D42: return "SMB2";
    case 0x01021997: return "9p";
    case 0x00C36400: return "Ceph";
    case 0x0BD00BD0: return "Lustre";
    case 0x47504653: return "GPFS";
    case 0x65735546: return "FUSE";
    case 0x5346414F: return "AFS";
    case 0x19830326: return "BeeGFS";
    default: return nullptr;
  }
}

Status CheckFilesystem(const std::string& dir) {
  struct statfs info {};
  if (::statfs(dir.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot examine " + dir);
  if (const char* name = UnsafeFilesystem(static_cast<long>(info.f_type))) {
    return Invalid(dir + " is on a network or user-space file system (" + name +
                   "), where the coordinator's store is not safe; choose a --dir on a local disk");
  }
  return OkStatus();
}

Result<DirectoryLock> DirectoryLock::Take(const std::string& dir) {
  std::string path = dir + "/" + kLockFile;
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "cannot open " + path);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    int err = errno;
    ::close(fd);
    if (err == EWOULDBLOCK) {
      return Refused(dir + " is in use by a running coordinator; stop it first, or choose another --dir");
    }
    return ErrnoStatus(err, "cannot lock " + path);
  }
  return DirectoryLock(fd);
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace locum
