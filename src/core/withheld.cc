#include "core/withheld.h"

#include <utility>

#include "base/check.h"

namespace locum {
namespace {

template <class T>
bool IsFor(const Action& action, StreamId stream) {
  const T* a = std::get_if<T>(&action);
  return a && a->stream == stream;
}

}  // namespace

void Withheld::Take(const Action& action, Time now) {
  if (const auto* persist = std::get_if<Persist>(&action)) {
    state_ = persist->state;
    return;
  }
  LOCUM_CHECK(waits() && !std::holds_alternative<WakeAt>(action));
  const auto replaces = [&](const Action& older) {
    if (const auto* order = std::get_if<SendOrder>(&action)) return IsFor<SendOrder>(older, order->stream);
    if (const auto* welcome = std::get_if<SendWelcome>(&action)) return IsFor<SendWelcome>(older, welcome->stream);
    // Behind a refusal nothing counts.
    if (const auto* refuse = std::get_if<RefuseNode>(&action)) {
      return IsFor<RefuseNode>(older, refuse->stream) || IsFor<SendOrder>(older, refuse->stream) ||
             IsFor<SendWelcome>(older, refuse->stream);
    }
    return false;
  };
  actions_.remove_if([&](const WithheldAction& older) { return replaces(older.action); });
  notes_ += std::holds_alternative<Note>(action);
  answers_ += std::holds_alternative<Answer>(action);
  actions_.push_back({now, action});
  const auto drop_oldest = [&](auto is_one) {
    for (auto at = actions_.begin(); at != actions_.end(); ++at) {
      if (!is_one(at->action)) continue;
      actions_.erase(at);
      return;
    }
  };
  if (notes_ > kMaxWithheldNotes) {
    drop_oldest([](const Action& a) { return std::holds_alternative<Note>(a); });
    --notes_;
    ++dropped_notes_;
  }
  if (answers_ > kMaxWithheldAnswers) {
    drop_oldest([](const Action& a) { return std::holds_alternative<Answer>(a); });
    --answers_;
  }
}

void Withheld::Forget(StreamId stream) {
  actions_.remove_if([&](const WithheldAction& a) {
    return IsFor<SendOrder>(a.action, stream) || IsFor<SendWelcome>(a.action, stream) ||
           IsFor<RefuseNode>(a.action, stream);
  });
}

std::vector<WithheldAction> Withheld::Release() {
  std::vector<WithheldAction> out;
  if (dropped_notes_ > 0) {
    Note note;
    note.name = "events_dropped";
    note.generation = state_->generation;
    note.reason = "the store could not be written for so long that the oldest events were dropped";
    note.figures = {{"events", static_cast<int64_t>(dropped_notes_)}};
    out.push_back({actions_.empty() ? Time{} : actions_.front().when, std::move(note)});
  }
  for (WithheldAction& a : actions_) out.push_back(std::move(a));
  *this = Withheld();
  return out;
}

}  // namespace locum
