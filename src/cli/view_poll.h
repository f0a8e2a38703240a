// Asks the coordinator for the present view, again and again, on a thread of its own.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/coordinator.h"

namespace locum {

class ViewPoll {
 public:
  ViewPoll(std::string address, std::string token);
  ~ViewPoll();
  ViewPoll(const ViewPoll&) = delete;
  ViewPoll& operator=(const ViewPoll&) = delete;

  // The newest view since the last call.
  std::optional<ClusterView> Take();
  // Asks at once.
  void Hurry();

 private:
  void Run(const std::string& address, const std::string& token);
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false, hurry_ = false;
  std::optional<ClusterView> view_;
  std::thread thread_;
};

}  // namespace locum
