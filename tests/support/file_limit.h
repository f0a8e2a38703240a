// While it lives, writes of this process beyond `bytes` of a file fail, with what was still allowed written: as on a disk
// that is full, or fills.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "base/check.h"

namespace locum {

class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : before_signal_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    LOCUM_CHECK(::setrlimit(RLIMIT_FSIZE, &now) == 0);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, before_signal_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*before_signal_)(int);
};

}  // namespace locum
