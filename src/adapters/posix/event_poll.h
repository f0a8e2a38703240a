// epoll with a callback for each descriptor. One thread.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "adapters/posix/owned_fd.h"
#include "base/ids.h"

namespace locum {

class EventPoll {
 public:
  using Callback = std::function<void(uint32_t events)>;

  EventPoll();

  // Ends a registration when it goes; it must go before its descriptor is closed, and before the EventPoll.
  class Watch {
   public:
    Watch() = default;
    Watch(EventPoll* poll, uint64_t id) : poll_(poll), id_(id) {}
    Watch(Watch&& other) noexcept : poll_(std::exchange(other.poll_, nullptr)), id_(other.id_) {}
    Watch& operator=(Watch&& other) noexcept {
      Reset();
      poll_ = std::exchange(other.poll_, nullptr);
      id_ = other.id_;
      return *this;
    }
    ~Watch() { Reset(); }
    void Reset() {
      if (poll_ != nullptr) std::exchange(poll_, nullptr)->Remove(id_);
    }
    void Change(uint32_t events) {
      if (poll_ != nullptr) poll_->Change(id_, events);
    }

   private:
    EventPoll* poll_ = nullptr;
    uint64_t id_ = 0;
  };

  // `fd` is watched for EPOLLIN or what else `events` says. A callback may add and end any registration.
  Watch Add(int fd, uint32_t events, Callback callback);
  // Calls the callbacks of what is ready; returns at `until` at the latest.
  void Wait(Time until);

 private:
  struct Entry {
    int fd;
    std::shared_ptr<Callback> callback;
  };
  void Remove(uint64_t id);
  void Change(uint64_t id, uint32_t events);

  OwnedFd epoll_;
  std::map<uint64_t, Entry> entries_;
  uint64_t next_id_ = 1;
};

}  // namespace locum
