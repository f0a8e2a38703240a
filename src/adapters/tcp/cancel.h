// A switch that ends waiting: once set it stays set, and every socket operation that was given it returns
// kInterrupted. Any thread may set it.
#pragma once

#include <atomic>

namespace locum {

class Cancel {
 public:
  Cancel();
  ~Cancel();
  Cancel(const Cancel&) = delete;
  Cancel& operator=(const Cancel&) = delete;

  void Set();
  bool IsSet() const { return set_.load(std::memory_order_acquire); }
  // Readable once set; for poll.
  int fd() const { return fd_; }

 private:
  std::atomic<bool> set_{false};
  int fd_;
};

}  // namespace locum
