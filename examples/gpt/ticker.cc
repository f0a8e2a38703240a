#include "ticker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace gpt {

Ticker::Ticker() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Ticker::~Ticker() {
  if (event_ >= 0) close(event_);
}

void Ticker::Start(gloo::transport::tcp::Device& device) {
  if (event_ < 0) return;  // out of descriptors: slower, not wrong
  Resume();
  device.registerDescriptor(event_, EPOLLIN, this);
}

void Ticker::Stop() { left_.store(0); }

void Ticker::Resume() {
  left_.store(kMaxTicks);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof(one));
}

void Ticker::handleEvents(int) {
  if (left_.fetch_sub(1) > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // leave the processor to those who connect
    return;
  }
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_, &count, sizeof(count));
}

}  // namespace gpt
