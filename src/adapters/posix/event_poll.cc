#include "adapters/posix/event_poll.h"

#include <algorithm>
#include <cerrno>

#include "adapters/posix/monotonic.h"
#include "base/check.h"

namespace locum {

EventPoll::EventPoll() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { LOCUM_CHECK(epoll_.valid()); }

EventPoll::Watch EventPoll::Add(int fd, uint32_t events, Callback callback) {
  uint64_t id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  LOCUM_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  entries_[id] = Entry{fd, std::make_shared<Callback>(std::move(callback))};
  return Watch(this, id);
}

void EventPoll::Remove(uint64_t id) {
  auto it = entries_.find(id);
  if (it == entries_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.fd, nullptr);
  entries_.erase(it);
}

void EventPoll::Change(uint64_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  LOCUM_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, entries_.at(id).fd, &event) == 0);
}

void EventPoll::Wait(Time until) {
  int timeout = -1;
  if (until != kNever) {
    // Rounded up: waking a little late is harmless, waking early would spin.
    int64_t ms = std::max<int64_t>(0, ((until - MonotonicNow()).count() + 999'999) / 1'000'000);
    timeout = static_cast<int>(std::min<int64_t>(ms, 3'600'000));
  }
  epoll_event events[64];
  int count = ::epoll_wait(epoll_.get(), events, 64, timeout);
  LOCUM_CHECK(count >= 0 || errno == EINTR);
  for (int i = 0; i < count; ++i) {
    const uint64_t id = events[i].data.u64;  // a copy: the kernel's structure is packed
    auto it = entries_.find(id);
    if (it == entries_.end()) continue;  // ended by an earlier callback
    std::shared_ptr<Callback> callback = it->second.callback;
    (*callback)(events[i].events);
  }
}

}  // namespace locum
