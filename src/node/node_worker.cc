#include "node/node_worker.h"

#include <algorithm>

namespace locum::node {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(100);
constexpr Duration kAskPause = std::chrono::seconds(1);

std::string Millis(Duration d) { return std::to_string(d.count() / 1'000'000) + " ms"; }

}  // namespace

FreezeDeadlines DeadlinesOf(const Welcome& welcome) {
  return {welcome.freeze_deadline, welcome.collective_deadline, welcome.park_deadline};
}

WorkerReport Worker::Report() const {
  WorkerReport report;
  report.slot = record.slot;
  report.worker = record.worker;
  report.pid = record.pid;
  report.joined = has_joined;
  report.life = record.ended ? WorkerLife::kExited : ready ? WorkerLife::kReady : WorkerLife::kStarting;
  if (record.ended) {
    report.exit = record.exit;
    if (!why_ended.empty()) report.exit->what += " (" + why_ended + ")";
  }
  if (said) report.state = *said;
  if (page) {
    report.state.word = page->word;
    // The page is quicker than the worker's word. The reason of an update that failed was sent before the page said torn,
    // so it is on its way. (What is fetched in place is torn as well, and has none; its trainer is parked.)
    const bool failed = page->word.state == WordState::kTorn && page->position != Position::kParked;
    const bool heard = said && !said->error.empty();
    if (Alive() && failed && !heard) report.state.word.state = WordState::kUpdating;
    report.state.position = page->position;
    report.state.stop_at = page->stop_at;
    report.state.starting = page->starting;
    report.state.has_loss = page->has_loss;
    report.state.loss = page->loss;
  }
  report.log = record.log;
  report.log_offset = log_offset;
  report.step_log = record.step_log;
  report.stuck = record.stuck;
  return report;
}

void Worker::Ordered(const WorkerOrder& order, Time now) {
  told = order;
  bool freezes = order.mode == Mode::kFreeze || order.mode == Mode::kRecover;
  if (!freezes || order.generation <= freeze) return;
  freeze = order.generation;
  freeze_since = now;
  if (unparked_since == kNever) unparked_since = now;
}

void Worker::Read(const PageReading& reading, Time now) {
  const bool inside = reading.position == Position::kInCollective;
  const bool same = page && page->position == reading.position && page->starting == reading.starting;
  if (!inside || !same) collective_since = inside ? now : kNever;
  page = reading;
}

bool Worker::WantsAsking(Time now) {
  if (!Alive() || !ready || asked_at != kNever || now < ask_again) return false;
  asked_at = now;
  ask_again = now + kAskPause;
  return true;
}

void Worker::Excuse(Duration gap) {
  asked_at = kNever;
  for (Time* since : {&freeze_since, &unparked_since}) {
    if (*since != kNever) *since = *since + gap;
  }
}

void Worker::Said(const WorkerState& state) {
  said = state;
  asked_at = kNever;
  if (FreezeAnswered()) freeze_since = kNever;
  // Only this is proof that the trainer's thread has come to wait for this generation. The page may show that it was
  // parked for an earlier one, and it may be let out of there before the freeze reaches the worker. A word that is
  // open in this generation was opened by the trainer's own thread, which may have come when all was ready and
  // never waited.
  const bool resumed = state.word.generation >= freeze && state.word.state != WordState::kFrozen;
  if (state.parked >= freeze || resumed) unparked_since = kNever;
}

bool Worker::WantsAbort() {
  if (unparked_since == kNever || aborted >= freeze || SeenParked()) return false;
  Generation now_in = page ? page->word.generation : said ? said->word.generation : Generation();
  if (now_in.value == 0 || now_in >= freeze) return false;  // it has no collective of an older generation
  aborted = freeze;
  return true;
}

std::string Worker::Overdue(const FreezeDeadlines& deadlines, Time now) const {
  if (!Alive() || !ready) return "";
  std::string which = "the freeze of generation " + std::to_string(freeze.value);
  if (freeze_since != kNever && now >= freeze_since + deadlines.answer) {
    return "did not answer " + which + " within " + Millis(deadlines.answer);
  }
  if (unparked_since == kNever || SeenParked() || !told || !told->expendable) return "";
  bool inside = page && page->position == Position::kInCollective;
  if (inside && now >= unparked_since + deadlines.collective) {
    return "was still in its collective " + Millis(deadlines.collective) + " after " + which;
  }
  if (now >= unparked_since + deadlines.park) {
    return "did not come to its next step within " + Millis(deadlines.park) + " after " + which;
  }
  return "";
}

Time Worker::NextDeadline(const FreezeDeadlines& deadlines, Time now) const {
  Time next = kNever;
  if (!Alive() || !ready) return next;
  auto consider = [&](Time since, Duration after) {
    if (since != kNever && since + after > now) next = std::min(next, since + after);
  };
  consider(freeze_since, deadlines.answer);
  consider(unparked_since, deadlines.collective);
  consider(unparked_since, deadlines.park);
  // The page changes without a message; and a longer rest would look like one that nobody meant.
  const bool watched = unparked_since != kNever || freeze_since != kNever || asked_at != kNever;
  if (watched) next = std::min(next, now + kLookAgain);
  return next;
}

}  // namespace locum::node
