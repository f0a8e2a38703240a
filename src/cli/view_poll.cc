#include "cli/view_poll.h"

#include <chrono>

#include "adapters/grpc/client.h"

namespace locum {
namespace {
constexpr auto kPause = std::chrono::seconds(1);  // no news comes more often, but events, which hurry
}

ViewPoll::ViewPoll(std::string address, std::string token)
    : thread_([this, address = std::move(address), token = std::move(token)] { Run(address, token); }) {}

ViewPoll::~ViewPoll() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::optional<ClusterView> ViewPoll::Take() {
  std::lock_guard lock(mutex_);
  std::optional<ClusterView> view;
  view.swap(view_);
  return view;
}

void ViewPoll::Hurry() {
  {
    std::lock_guard lock(mutex_);
    hurry_ = true;
  }
  wake_.notify_all();
}

void ViewPoll::Run(const std::string& address, const std::string& token) {
  GrpcClient client(address, token);
  while (true) {
    auto view = client.View(std::chrono::seconds(1));
    std::unique_lock lock(mutex_);
    if (view.ok()) view_ = std::move(*view);
    if (stop_) return;
    wake_.wait_for(lock, kPause, [&] { return stop_ || hurry_; });
    if (stop_) return;
    hurry_ = false;
  }
}

}  // namespace locum
