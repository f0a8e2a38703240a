#include "worker/breaker.h"

#include <algorithm>

namespace locum {

std::optional<Duration> Breaker::Look(Time now) {
  const std::optional<Protocol::Straggler> straggler = find_();
  if (!straggler) return std::nullopt;
  if (breaking_ != straggler->generation) {
    breaking_ = straggler->generation;
    due_ = straggler->since + (straggler->has_abort ? kAbortMoment : Duration::zero());
    pause_ = kFirstBreakPause;
  }
  if (now >= due_) {
    break_group_(straggler->generation);
    due_ = now + pause_;
    pause_ = std::min(2 * pause_, kLastBreakPause);
  }
  return due_ - now;
}

}  // namespace locum
