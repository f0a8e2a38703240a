// What the core has asked for since something to persist could not be written. Nothing that follows from it may be
// sent before it is on disk, and the core goes on taking facts meanwhile; so this keeps, within limits, what will
// still count then: the newest state; per stream the newest welcome, order and refusal, each a whole state; the
// answers; and the newest notes.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "core/coordinator.h"

namespace locum {

inline constexpr size_t kMaxWithheldNotes = 2000;
inline constexpr size_t kMaxWithheldAnswers = 256;  // more than the port lets wait

struct WithheldAction {
  Time when;  // the core asked for it
  Action action;
};

class Withheld {
 public:
  // Whether something to persist waits, and so everything else does.
  bool waits() const { return state_ != nullptr; }
  const std::shared_ptr<const PersistentState>& state() const { return state_; }
  // Anything but WakeAt, which is for the core's own clock. The first is a Persist.
  void Take(const Action& action, Time now);
  // The stream is gone, and with it what was meant for it.
  void Forget(StreamId stream);
  // `state` is on disk. What waited, in the order in which it was asked for; a note of its own says how many notes were
  // dropped.
  std::vector<WithheldAction> Release();

 private:
  std::shared_ptr<const PersistentState> state_;
  std::list<WithheldAction> actions_;
  size_t notes_ = 0, answers_ = 0, dropped_notes_ = 0;
};

}  // namespace locum
