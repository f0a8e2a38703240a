// One worker as its agent sees it: what the keeper, the worker itself and its page say, what it was told, and the
// deadlines it is held to after a freeze.
//
// A worker that was ordered to freeze answers by itself (its control thread) and comes back to NextStep by its
// trainer's thread. The second may sit in a collective that nobody will complete any more: the program's own abort
// call is the first means, SIGKILL the last. Both are steps on one ladder, judged anew at every look at the page,
// since the page may be older than the order.
#pragma once

#include <optional>
#include <string>

#include "base/supervision.h"

namespace locum::node {

struct FreezeDeadlines {
  Duration answer{};
  Duration collective{};
  Duration park{};
};

FreezeDeadlines DeadlinesOf(const Welcome& welcome);

struct Worker {
  WorkerRecord record;
  bool has_joined = false;  // also when it has ended since
  std::optional<JoinInfo> ready;
  std::optional<WorkerState> said;
  std::optional<PageReading> page;
  Time collective_since = kNever;   // since when the page has shown it in one collective
  std::optional<WorkerOrder> told;  // the last order relayed

  uint64_t log_offset = 0;
  Rank run_rank = kNoRank;  // of the last order to run; whose offset `log_offset` is

  Generation freeze;             // the newest it was ordered to freeze for
  Time freeze_since = kNever;    // when
  Time unparked_since = kNever;  // when it was first ordered to, and has not parked since
  Generation aborted;            // the newest freeze for which its program was told to abort

  Time asked_at = kNever;  // when it was asked for a sign of life that it has not given since
  Time ask_again{};        // not before

  bool saving_stacks = false;  // it hangs; it is ended when they are saved, or at `gone_by`
  bool stopping = false;
  Duration stop_grace{};
  std::string why_ended;  // why this node ended it
  Time gone_by = kNever;  // it closed its connection or was refused: it should end by itself until then
  std::string why_gone;

  bool Alive() const { return !record.ended; }
  WorkerReport Report() const;

  // Notes an order to relay.
  void Ordered(const WorkerOrder& order, Time now);
  // Takes what its page shows.
  void Read(const PageReading& reading, Time now);
  bool Waits(Time now) const { return Alive() && collective_since != kNever && now >= collective_since + kWaitsAfter; }
  // Whether it should be asked now for a sign of life; true once per question.
  bool WantsAsking(Time now);
  bool Mute(Duration patience, Time now) const { return Alive() && asked_at != kNever && now >= asked_at + patience; }
  // Its node did not look for so long: that counts against no deadline.
  void Excuse(Duration gap);
  // Takes what it says.
  void Said(const WorkerState& state);
  // Whether the trainer's thread should be broken out of its collective now; true once per freeze.
  bool WantsAbort();
  // Why it has to be ended now; empty: it has not.
  std::string Overdue(const FreezeDeadlines& deadlines, Time now) const;
  // When Overdue may change its mind by time alone.
  Time NextDeadline(const FreezeDeadlines& deadlines, Time now) const;

 private:
  bool FreezeAnswered() const { return said && said->frozen >= freeze; }
  bool SeenParked() const { return page && page->position == Position::kParked; }
};

}  // namespace locum::node
