// The worker's side of the recovery protocol: one lock around everything that its threads must agree on. No
// I/O but the page and two wake-ups happens under the lock.
//
// Threads and what each may do:
//   trainer  runs steps; may change registered state only between BeginUpdate's swap OPEN->UPDATING and the
//            store of OPEN(step+1). It is *parked* while it waits in NextTurn or Finish.
//   control  takes orders, freezes (OPEN->FROZEN), sends reports.
//   mover    makes the state that of the recovery step: hashes it, or pulls it. It writes registered state only
//            between BeginOverwrite and EndOverwrite.
//   serving  read registered state between BeginServe and EndServe.
//   aborter  calls the program's abort function.
//
// Invariants:
//   * Registered state is written by the trainer only while the word is UPDATING, by the mover only while the
//     word is TORN and the trainer is parked and nobody serves. It is read by others only while it is FROZEN.
//   * The trainer leaves its parking only when nobody overwrites, serves, or runs the abort function.
//   * A holding is reported only after the word is FROZEN. TORN is never a valid holding, so neither is a
//     half-pulled copy.
//   * The word becomes OPEN in a generation only by an order to run it, after this worker verified its state for
//     exactly that generation.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adapters/tcp/cancel.h"
#include "base/cluster.h"
#include "base/status.h"
#include "ports/page.h"
#include "state/transfer.h"
#include "worker/registered_state.h"

namespace locum {

// What the trainer needs of the generation it runs in.
struct RunInfo {
  Generation generation;
  Step step;
  Rank rank;
  uint32_t world = 0;
  Peer store_host;
  uint64_t state_hash = 0;  // as verified
  int64_t pulled_ns = 0;    // when the state it starts from was verified, if it was pulled; else 0
  Cancel over;              // set when the generation has ended for this worker
};

struct Turn {
  enum Kind { kGo, kRegrouped, kLast };
  Kind kind = kGo;
  Step step;
  std::shared_ptr<RunInfo> run;  // kRegrouped
};

struct MoverTask {
  bool echo = false;
  WorkerOrder order;  // kRecover, or one with an echo
  std::shared_ptr<Cancel> cancel;
};

class Protocol {
 public:
  // `page` outlives this. `poke_control` and `poke_port` make those threads look; they must not block.
  Protocol(Page* page, Incarnation self, uint64_t total_steps, std::function<void()> poke_control,
           std::function<void()> poke_port);

  // ---- trainer ----------------------------------------------------------------------------------------
  // The state is registered and complete: from here on this worker may be ordered about.
  void Ready(const RegisteredState* state);
  // True while NextTurn would wait or fail; cheap.
  bool attention() const { return attention_.load(std::memory_order_acquire); }
  // Blocks until there is a step to run, or none is left. kUnavailable, kRefused: this worker must end.
  Result<Turn> NextTurn();
  // Blocks until the job's end is on record. kInterrupted: the last state was taken back.
  Status Finish();
  void Connected(Generation generation, int64_t when_ns);
  void FirstCommit(Generation generation, int64_t when_ns);
  void Broken(Generation generation, Step step, const std::string& why);
  void StopAt(Step step);
  // The update that is under way has failed: blocks until the node has been sent the reason, for kTornPatience at most,
  // and marks the state torn.
  void Torn(const std::string& why);
  void SetAbort(locum_abort_fn abort, void* context);
  std::shared_ptr<RunInfo> CurrentRun();  // null when there is none

  // ---- control ----------------------------------------------------------------------------------------
  void TakeOrder(const WorkerOrder& order);
  void TakeAbort(Generation generation);
  // Looks again at what could not be done at once. True: ask again within kUpdatePoll.
  bool Reconcile();
  void NodeGone(const Status& why);
  // The report, when there is something new in it or `always`.
  std::optional<WorkerState> TakeReport(bool always);
  // The report that was taken last has left.
  void ReportSent();
  bool ready();
  // A trainer whose generation a newer one has frozen, and that has not parked: it may wait in a collective that
  // nobody will complete.
  struct Straggler {
    Generation generation;  // that it is in
    Time since{};
    bool has_abort = false;
  };
  std::optional<Straggler> FindStraggler();
  // Every data port that an order has named since the last one to run, and those that this one named.
  std::set<std::string> DataAddresses();

  // ---- mover ------------------------------------------------------------------------------------------
  // Blocks until there is work; empty when leaving.
  std::optional<MoverTask> AwaitTask();
  void TaskDone();
  std::shared_ptr<ChunkHashes> Hashes();
  // Waits until the state may be overwritten, then marks it torn. kInterrupted when the task was cancelled.
  Status BeginOverwrite(const MoverTask& task);
  // With `hashes` the state is now that of the task's recovery step; without, it stays torn.
  void EndOverwrite(const MoverTask& task, std::shared_ptr<ChunkHashes> hashes);
  void Verified(const MoverTask& task, const locum::Verified& verified);
  void CannotPull(const MoverTask& task, const std::string& why);
  void Echoed(const MoverTask& task, const Echo& echo);
  std::vector<Peer> Sources(const MoverTask& task);  // the newest order's
  Word word() const { return Word::Unpack(page_->word.load(std::memory_order_acquire)); }

  // ---- data port --------------------------------------------------------------------------------------
  struct Ticket {
    std::shared_ptr<Cancel> cancel;
    std::shared_ptr<ChunkHashes> hashes;
  };
  Result<Ticket> BeginServe(const DataRequest& request);
  void EndServe();
  Generation StoreGeneration();

  // ---- aborter ----------------------------------------------------------------------------------------
  // Blocks until the abort function is to be called (false: leaving); AbortDone must follow true.
  bool AwaitAbort(locum_abort_fn* abort, void** context);
  void AbortDone();

  // Ends all waiting: everything of this worker is to stop.
  void Leave();

 private:
  using Lock = std::unique_lock<std::mutex>;

  void Changed();  // a report is due
  void Park();
  void Unpark();
  bool Busy() const { return overwriting_ || aborting_; }
  std::optional<Result<Turn>> Decide();
  bool TakeResume();
  bool MayBegin(Step step);
  void CloseServing();
  bool Freeze(Generation generation);
  void NoteDataAddresses(const WorkerOrder& order);
  bool ReconcileLocked();
  void StartRecovery();
  void EndRun();
  void SetWord(Generation generation, Step step, WordState state);
  void Fail(const Status& why);
  bool Last(Step step) const;

  Page* const page_;
  const Incarnation self_;
  const uint64_t total_steps_;
  const std::function<void()> poke_control_;
  const std::function<void()> poke_port_;
  std::atomic<bool> attention_{true};

  std::mutex mu_;
  std::condition_variable changed_;  // all waits of all threads; changes are rare
  bool ready_ = false;
  bool leaving_ = false;
  const RegisteredState* state_ = nullptr;
  uint64_t layout_hash_ = 0;
  Status error_;  // why this worker must end
  Status torn_;   // the trainer's own update failed
  bool finished_ = false;

  WorkerState report_;
  // Of the last pull that no generation has run on yet: the next may go on from the same copy without another one.
  int64_t pulled_ns_ = 0;
  bool dirty_ = false;
  uint64_t changes_ = 0, taken_ = 0, sent_ = 0;  // of the report: counted, in the one taken last, in the one sent last
  std::optional<WorkerOrder> order_;
  Generation newest_;  // of all orders
  std::set<std::string> data_addresses_;

  // trainer
  bool parked_ = false;
  std::shared_ptr<RunInfo> run_;       // the generation that the trainer is in
  Time run_frozen_since_ = kNever;     // when a newer one froze it
  bool regroup_due_ = false;           // it has not been told yet that run_ is new
  std::optional<WorkerOrder> resume_;  // an order to run that it has not seen yet
  std::optional<Step> stop_step_;      // locum_stop
  std::optional<Step> finish_step_;    // while it is in Finish: the state it finished with

  // mover
  std::optional<MoverTask> task_;  // being worked on
  bool task_taken_ = false;
  std::optional<WorkerOrder> attempted_;  // the recovery that was begun last
  bool attempt_failed_ = false;
  bool overwriting_ = false;
  std::shared_ptr<ChunkHashes> hashes_;

  // serving
  uint32_t serving_ = 0;
  bool closed_ = false;
  std::shared_ptr<Cancel> serve_cancel_ = std::make_shared<Cancel>();

  // aborter
  locum_abort_fn abort_ = nullptr;
  void* abort_context_ = nullptr;
  Generation aborted_;
  bool abort_wanted_ = false;
  bool aborting_ = false;
};

// A node that does not read for so long is lost.
inline constexpr Duration kTornPatience = std::chrono::seconds(1);

// How often an update that is under way is looked at, when a freeze waits for its end.
inline constexpr Duration kUpdatePoll = std::chrono::microseconds(200);

}  // namespace locum
