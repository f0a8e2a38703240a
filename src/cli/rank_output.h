// Follows rank 0's output through the log files of the workers that hold it, one after the other. Each byte from the
// place where a worker got the rank is passed on exactly once.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "cli/status_json.h"
#include "core/coordinator.h"

namespace locum {

class RankOutput {
 public:
  explicit RankOutput(std::function<void(std::string_view)> pass) : pass_(std::move(pass)) {}
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // Rank 0 is held by whom the view says, once it has been told to run with it: only from then on it is known where in
  // its log the rank's output begins.
  void Follow(const ClusterView& view);
  // The same by the last status of the run in `dir`.
  void FollowLast(const Json& status, const std::string& dir);
  // Rank 0 is held by the worker with this log, which got it when the log had `offset` bytes.
  void Holder(const std::string& log, uint64_t offset);
  // Passes on what is new.
  void Pump();

 private:
  const std::function<void(std::string_view)> pass_;
  std::string log_;
  int fd_ = -1;
  uint64_t at_ = 0;
  std::map<std::string, uint64_t> passed_;  // of logs followed before
};

}  // namespace locum
