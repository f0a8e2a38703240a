#include "cli/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace locum {

RankOutput::~RankOutput() {
  if (fd_ >= 0) ::close(fd_);
}

void RankOutput::Holder(const std::string& log, uint64_t offset) {
  if (log.empty() || log == log_) return;
  Pump();  // the last words of the holder before
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  if (!log_.empty()) passed_[log_] = at_;
  log_ = log;
  auto before = passed_.find(log);
  at_ = before == passed_.end() ? offset : std::max(offset, before->second);
}

void RankOutput::Pump() {
  if (log_.empty()) return;
  if (fd_ < 0) fd_ = ::open(log_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return;
  std::vector<char> buffer(64u << 10);
  while (true) {
    ssize_t n = ::pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(at_));
    if (n <= 0) return;
    at_ += static_cast<uint64_t>(n);
    pass_({buffer.data(), static_cast<size_t>(n)});
  }
}

}  // namespace locum
