#include "sim/network.h"

#include <algorithm>
#include <utility>

namespace locum::sim {

void Network::Set(Machine from, Machine to, bool passes) {
  if (passes) {
    cuts_.erase({from, to});
  } else {
    cuts_[{from, to}] = true;
  }
  for (const auto& changed : watchers_) changed();
}

bool Stream::Passes(const Direction* direction) const {
  return direction == &up_ ? network_->Passes(node, kCoordinatorHost) : network_->Passes(kCoordinatorHost, node);
}

void Stream::Send(Direction* direction, std::function<void()> deliver, bool is_report) {
  Stage* stage = network_->stage();
  direction->clear = std::max(direction->clear, stage->now() + stage->Delay(kHop));
  // What the sockets hold already stays; of reports that wait in front of them only the newest does.
  if (is_report && direction->queue.size() > 4 && direction->queue.back().is_report) direction->queue.pop_back();
  direction->queue.push_back({direction->clear, std::move(deliver), is_report});
  stage->At(direction->clear, [self = shared_from_this(), direction] { self->Pump(direction); });
}

void Stream::Pump(Direction* direction) {
  while (!direction->queue.empty() && direction->queue.front().when <= network_->stage()->now() && Passes(direction)) {
    Message message = std::move(direction->queue.front());
    direction->queue.pop_front();
    if (direction == &up_ ? coordinator_open_ : agent_open_) message.deliver();
  }
}

void Stream::EndAgent(const std::string& why) {
  if (!std::exchange(agent_open_, false)) return;
  Send(
      &up_,
      [self = shared_from_this(), why] {
        if (std::exchange(self->coordinator_open_, false) && self->coordinator_closed) self->coordinator_closed(why);
      },
      false);
}

void Stream::EndCoordinator(const std::string& why) {
  if (!std::exchange(coordinator_open_, false)) return;
  Send(
      &down_,
      [self = shared_from_this(), why] {
        if (std::exchange(self->agent_open_, false) && self->agent_closed) self->agent_closed(why);
      },
      false);
}

void Stream::Look() {
  Stage* stage = network_->stage();
  if (Passes(&up_) && Passes(&down_)) {
    cut_since_ = kNever;
  } else if (cut_since_ == kNever) {
    cut_since_ = stage->now();
    stage->After(kKeepalive, [self = shared_from_this(), since = cut_since_] {
      if (self->cut_since_ == since) self->EndByKeepalive();
    });
  }
  for (Direction* direction : {&up_, &down_}) {
    if (!direction->queue.empty())
      stage->After(Duration(0), [self = shared_from_this(), direction] { self->Pump(direction); });
  }
}

void Stream::EndByKeepalive() {
  const std::string why = "keepalive watchdog timeout";
  if (std::exchange(agent_open_, false) && agent_closed) agent_closed(why);
  if (std::exchange(coordinator_open_, false) && coordinator_closed) coordinator_closed(why);
}

}  // namespace locum::sim
