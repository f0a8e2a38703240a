#include "adapters/sqlite/directory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace locum {
namespace {

constexpr int kLockAttempts = 100;

// A start that failed takes its lock file away while it holds it; then a lock on it is nobody's door any more.
bool IsNamed(int fd, const std::string& path) {
  struct stat held {
  }, named{};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

}  // namespace

// Locks and the shared index of SQLite's write-ahead log need one kernel that all users share, and a sync that reaches
// the disk. So also here: file systems of clusters that share a disk (their locks may be local to a machine), a
// hypervisor's shared folders (no shared mappings), and FUSE, which does not tell sshfs or an object store from a
// local disk. Numbers without a name in linux/magic.h are those that the file systems' own sources give.
const char* UnsafeFilesystem(long magic) {
  switch (static_cast<unsigned long>(magic) & 0xffffffffu) {
    case NFS_SUPER_MAGIC: return "NFS";
    case SMB_SUPER_MAGIC: return "SMB";
    case CIFS_SUPER_MAGIC: return "CIFS";
    case SMB2_SUPER_MAGIC: return "SMB2";
    case NCP_SUPER_MAGIC: return "NCP";
    case AFS_SUPER_MAGIC:
    case AFS_FS_MAGIC: return "AFS";
    case CODA_SUPER_MAGIC: return "Coda";
    case V9FS_MAGIC: return "9p";
    case CEPH_SUPER_MAGIC: return "Ceph";
    case OCFS2_SUPER_MAGIC: return "OCFS2";
    case FUSE_SUPER_MAGIC: return "FUSE";
    case 0x01161970: return "GFS2";
    case 0x0BD00BD0: return "Lustre";
    case 0x47504653: return "GPFS";
    case 0x19830326: return "BeeGFS";
    case 0x20030528: return "OrangeFS";
    case 0xAAD7AAEA: return "PanFS";
    case 0x786F4256: return "VirtualBox shared folder";
    case 0xBACBACBC: return "VMware shared folder";
    default: return nullptr;
  }
}

Status CheckPathLength(const std::string& dir) {
  std::error_code error;
  const std::string path = std::filesystem::weakly_canonical(dir, error).string();
  const size_t length = error ? dir.size() : path.size();
  if (length <= kMaxDirectoryPath) return OkStatus();
  return Invalid("the path of DIR has " + std::to_string(length) + " bytes, and may have " +
                 std::to_string(kMaxDirectoryPath) + "; choose a shorter --dir");
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

// Tried, not asked: a quota, or blocks kept for root, show only so.
Status CheckRoom(const std::string& dir) {
  const std::string path = dir + "/" + kRoomFile;
  ::unlink(path.c_str());  // of a process that was killed
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const int error = fd < 0 ? errno : ::posix_fallocate(fd, 0, kRoomBytes);
  if (fd >= 0) ::close(fd);
  ::unlink(path.c_str());
  if (error == 0) return OkStatus();
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const std::string why = std::strerror(error);
  if (!full) return Invalid(dir + " cannot be written (" + why + "); choose another --dir");
  return Internal("the disk of " + dir + " is full: it has not the " + std::to_string(kRoomBytes >> 20) +
                  " MiB that a coordinator begins with (" + why + ")");
}

Result<DirectoryLock> DirectoryLock::Take(const std::string& dir) {
  std::string path = dir + "/" + kLockFile;
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 && (errno == EACCES || errno == EROFS)) {
      return Invalid(dir + " cannot be written (" + std::strerror(errno) + "); choose another --dir");
    }
    if (fd < 0) return ErrnoStatus(errno, "cannot open " + path);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      int err = errno;
      ::close(fd);
      if (err == EWOULDBLOCK) {
        return Refused(dir +
                       " is in use by a running coordinator or locum run; stop it first, or choose another --dir");
      }
      return ErrnoStatus(err, "cannot lock " + path);
    }
    if (IsNamed(fd, path)) return DirectoryLock(fd);
    ::close(fd);
  }
  return Refused(dir + ": other coordinators start and fail there all the time; choose another --dir");
}

Result<DirectoryLock> DirectoryLock::Inherit(const std::string& dir, int fd) {
  if (fd < 0 || !IsNamed(fd, dir + "/" + kLockFile) || ::flock(fd, LOCK_EX | LOCK_NB) != 0 ||
      ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return Invalid("descriptor " + std::to_string(fd) + " is not the lock of " + dir);
  }
  return DirectoryLock(fd);
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace locum
