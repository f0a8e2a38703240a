#include "cli/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

namespace locum {
namespace {

// Whether the holder of a rank has been told to run with it: from then on it is known where its output begins.
bool Runs(const ClusterView& view, const RankView& rank) {
  for (const NodeView& node : view.nodes) {
    for (const WorkerReport& worker : node.workers) {
      if (worker.worker == rank.worker && worker.state.rank == rank.rank) return true;
    }
  }
  return false;
}

struct LastHolder {
  std::string node, log;
  uint64_t offset = 0;
};

// The holder of rank 0 in the last status, if it has run with it.
std::optional<LastHolder> HolderIn(const Json& status) {
  try {
    const Json& rank = status.at("ranks").at(0);
    for (const Json& node : status.at("nodes")) {
      for (const Json& worker : node.at("workers")) {
        if (worker.at("worker") != rank.at("worker") || worker.at("rank") != rank.at("rank")) continue;
        if (!rank.at("log_offset").is_number_unsigned()) return std::nullopt;
        return LastHolder{rank.at("node"), rank.at("log"), rank.at("log_offset")};
      }
    }
  } catch (const Json::exception&) {  // it is not what a coordinator writes
  }
  return std::nullopt;
}

}  // namespace

RankOutput::~RankOutput() {
  if (fd_ >= 0) ::close(fd_);
}

void RankOutput::Follow(const ClusterView& view) {
  if (!view.ranks.empty() && Runs(view, view.ranks[0])) Holder(view.ranks[0].log, view.ranks[0].log_offset);
}

void RankOutput::FollowLast(const Json& status, const std::string& dir) {
  const std::optional<LastHolder> last = HolderIn(status);
  if (!last) return;
  // JSON is text, and the path of DIR need not be one; the name of a log is.
  std::error_code error;
  const std::string real = std::filesystem::canonical(dir, error).string();
  const std::string name = std::filesystem::path(last->log).filename().string();
  if (error || name.empty()) return;
  Holder(real + "/nodes/" + last->node + "/" + name, last->offset);
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
