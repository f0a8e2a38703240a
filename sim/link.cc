#include "sim/link.h"

#include <algorithm>
#include <utility>

#include "sim/control.h"

namespace locum::sim {
namespace {

constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration kFirstPause = Ms(20);
constexpr Duration kLongestPause = Ms(1000);
constexpr Duration kWelcomeDeadline = std::chrono::seconds(10);

}  // namespace

void Link::Start(const NodeHello& hello) {
  hello_ = hello;
  pause_ = kFirstPause;
  Attempt();
}

void Link::After(Duration delay, void (Link::*what)()) {
  world_->stage.After(delay, [self = shared_from_this(), what, attempt = attempt_] {
    if (!self->stopped_ && self->attempt_ == attempt) (self.get()->*what)();
  });
}

void Link::Attempt() {
  ++attempt_;
  trying_ = true;
  up_ = false;
  refused_.reset();
  // A stream carries nothing before its connection stands.
  stream_ = world_->network.Reach(node_, kCoordinatorHost) ? world_->control->Accept(node_, hello_) : nullptr;
  After(kWelcomeDeadline, &Link::GiveUp);
  if (!stream_) {
    if (world_->network.Reach(node_, kCoordinatorHost)) {
      world_->stage.After(2 * kHop, [self = shared_from_this(), attempt = attempt_] {
        if (!self->stopped_ && self->attempt_ == attempt) self->Ended("connection refused");
      });
    }
    return;
  }
  stream_->welcomed = [self = shared_from_this()](const Welcome& welcome) { self->Welcomed(welcome); };
  stream_->ordered = [self = shared_from_this()](const NodeOrder& order) { self->deliver_(LinkOrder{order}); };
  stream_->refused = [self = shared_from_this()](const std::string& reason, bool end) {
    self->refused_ = LinkRefused{reason, end};
  };
  stream_->agent_closed = [self = shared_from_this(), attempt = attempt_](const std::string& why) {
    if (!self->stopped_ && self->attempt_ == attempt) self->Ended(why);
  };
}

void Link::GiveUp() {
  if (!trying_ || up_) return;
  if (stream_) stream_->EndAgent("cancelled");
  Ended("no answer from the coordinator");
}

void Link::Welcomed(const Welcome& welcome) {
  up_ = true;
  deliver_(LinkUp{welcome});
}

void Link::Ended(const std::string& why) {
  const bool was_up = up_;
  up_ = trying_ = false;
  stream_.reset();
  if (refused_) {
    deliver_(*refused_);
    pause_ = kLongestPause;
  } else if (was_up || why != last_reason_) {
    deliver_(LinkLost{why});
  }
  last_reason_ = refused_ ? refused_->reason : why;
  if (was_up && !refused_) pause_ = kFirstPause;
  After(pause_, &Link::Attempt);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void Link::ConnectAgain() {
  if (!stream_) return;
  stream_->EndAgent("cancelled");
  After(kHop, &Link::GiveUp);
  const auto again = [self = shared_from_this(), attempt = attempt_] {
    if (!self->stopped_ && self->attempt_ == attempt && self->stream_) self->Ended("cancelled");
  };
  world_->stage.After(kHop, again);
}

void Link::SendReady(Slot slot, Incarnation worker, const JoinInfo& info) {
  if (!up_ || !stream_) return;
  stream_->Up([control = world_->control, id = stream_->id, slot, worker, info] {
    control->Deliver(WorkerReady{id, slot, worker, info});
  });
}

void Link::SendReport(const NodeReport& report) {
  if (!up_ || !stream_) return;
  stream_->Up(
      [control = world_->control, id = stream_->id, report] {
        control->Deliver(NodeReported{id, report});
      },
      true);
}

void Link::End() {
  stopped_ = true;
  if (stream_) stream_->EndAgent("connection reset");
  stream_.reset();
}

std::string Link::Describe() const {
  return std::string(up_       ? "up"
                     : trying_ ? "connecting"
                               : "pausing") +
         (stream_ ? " stream " + std::to_string(stream_->id) : "");
}

}  // namespace locum::sim
