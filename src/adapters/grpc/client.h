// The command's calls to a coordinator. Each blocks for at most its deadline.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "core/coordinator.h"

namespace locum {

// kUnavailable and kTimeout: not there now. kRefused: wrong token, or the request is not accepted.
class GrpcClient {
 public:
  GrpcClient(std::string address, std::string token);
  ~GrpcClient();
  Result<ClusterView> View(Duration deadline = std::chrono::seconds(5));
  struct Lines {
    std::string text;
    uint64_t next_offset = 0;
  };
  Result<Lines> Events(uint64_t offset, Duration deadline = std::chrono::seconds(5));
  Status Failback(const std::string& node, Duration deadline = std::chrono::seconds(30));
  Status Adopt(Duration deadline = std::chrono::seconds(30));

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace locum
