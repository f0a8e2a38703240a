#include "sim/stage.h"

#include <algorithm>
#include <utility>

namespace locum::sim {

Duration Stage::Delay(Duration mean) {
  if (!jitter_) return mean;
  const uint64_t half = static_cast<uint64_t>(mean.count()) / 2 + 1;
  const Duration d(static_cast<int64_t>(half + random_.Below(2 * half)));
  return random_.OneIn(50) ? 10 * d : d;
}

void Stage::At(Time when, std::function<void()> what) {
  heap_.push_back({std::max(when, now_), ++asked_, std::move(what)});
  std::push_heap(heap_.begin(), heap_.end());
}

bool Stage::RunUntil(const std::function<bool()>& done, Time end) {
  while (!done()) {
    if (heap_.empty() || heap_.front().when > end) {
      now_ = std::max(now_, end);
      return false;
    }
    std::pop_heap(heap_.begin(), heap_.end());
    Due next = std::move(heap_.back());
    heap_.pop_back();
    now_ = next.when;
    next.what();
  }
  return true;
}

void Pipe::Send(Duration mean, std::function<void()> deliver) {
  clear_ = std::max(clear_, stage_->now() + stage_->Delay(mean));
  stage_->At(clear_, std::move(deliver));
}

}  // namespace locum::sim
