// What everything simulated shares: a clock, what is to happen, and random numbers, all from one seed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "base/random.h"

namespace locum::sim {

class Stage {
 public:
  // Without `jitter` every delay has its mean, for scripts that people read.
  Stage(uint64_t seed, bool jitter) : random_(seed), jitter_(jitter) {}

  Time now() const { return now_; }
  Random& random() { return random_; }
  Incarnation Draw() { return Incarnation(random_.Next() | 1); }
  // Mostly near the mean, now and then ten times as long.
  Duration Delay(Duration mean);

  // What is due at one time happens in the order in which it was asked for.
  void At(Time when, std::function<void()> what);
  void After(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  // Until `done` or `end`; false: `end` came first.
  bool RunUntil(const std::function<bool()>& done, Time end);

 private:
  struct Due {
    Time when;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Due& other) const { return std::pair(other.when, other.order) < std::pair(when, order); }
  };

  Random random_;
  const bool jitter_;
  Time now_{};
  uint64_t asked_ = 0;
  std::vector<Due> heap_;
};

// Messages between two processes of one machine: each takes its own time, none overtakes.
class Pipe {
 public:
  explicit Pipe(Stage* stage) : stage_(stage) {}
  void Send(Duration mean, std::function<void()> deliver);

 private:
  Stage* const stage_;
  Time clear_{};
};

}  // namespace locum::sim
