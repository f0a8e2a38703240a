// Breaks a trainer's thread out of a collective that its generation's end has left without partners: the rung of the
// ladder between the program's own abort call and the SIGKILL of its node. It only makes things quick; that a frozen
// state does not change holds without it.
#pragma once

#include <functional>
#include <optional>

#include "worker/protocol.h"

namespace locum {

// How long after the freeze the program's abort call is left to work alone.
inline constexpr Duration kAbortMoment = std::chrono::milliseconds(100);
// Between two looks: what connected meanwhile is found by the next. A trainer that computes on costs next to nothing.
inline constexpr Duration kFirstBreakPause = std::chrono::milliseconds(5);
inline constexpr Duration kLastBreakPause = std::chrono::milliseconds(200);

class Breaker {
 public:
  Breaker(std::function<std::optional<Protocol::Straggler>()> find, std::function<void(Generation)> break_group)
      : find_(std::move(find)), break_group_(std::move(break_group)) {}
  // On the control thread. Does what is due, until the trainer is parked; the node's deadline ends what this cannot.
  // Nothing: there is nobody to break out. Else look again within this time.
  std::optional<Duration> Look(Time now);

 private:
  const std::function<std::optional<Protocol::Straggler>()> find_;
  const std::function<void(Generation)> break_group_;
  Generation breaking_;
  Time due_{};
  Duration pause_{};
};

}  // namespace locum
