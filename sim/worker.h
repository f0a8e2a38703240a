// A worker of the simulator: a model of the worker library (src/worker) and of a trainer that keeps its contract.
//
// The library's threads are those of src/worker/protocol.h, and the words here are those there: control takes orders,
// freezes and reports; the trainer runs steps and parks; the mover makes the state that of the recovery step; others read
// it through tickets. Everything they do takes time of its own, so that they meet in every order.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/supervision.h"
#include "sim/gang.h"
#include "sim/world.h"

namespace locum::sim {

// One transfer's order, from its begin to its end.
struct Task {
  WorkerOrder order;
  bool echo = false;
  bool cancelled = false;
};

class Worker : public std::enable_shared_from_this<Worker>, public GangMember {
 public:
  Worker(World* world, Node* node, Slot place, Incarnation number, int32_t process);

  const Slot slot;
  const Incarnation id;
  const int32_t pid;
  Node* node() const { return node_; }

  // ---- the process ----
  void Begin();  // to its joining
  void End(ProcessEnd end);
  void Sleep();  // SIGSTOP
  void Wake();   // SIGCONT
  void Stick();  // in the kernel: nothing of it runs, SIGKILL does not end it
  bool alive() const override { return alive_; }
  bool asleep() const { return asleep_; }
  bool stuck() const { return stuck_; }
  Machine machine() const override;

  // ---- what is done to its program ----
  void TearNext() { tear_next_ = true; }    // its next update fails half-way
  void StopNext() { stop_next_ = true; }    // it decides by itself that the state it holds is the last
  void BreakNext() { break_next_ = true; }  // its next collective breaks, and nobody died
  void Deafen() { deaf_ = true; }           // it does not leave a collective that breaks
  void Hang();                              // its trainer does nothing any more
  void Spoil();                             // its state is changed behind everyone's back
  void Behave() { tear_next_ = stop_next_ = break_next_ = hang_next_ = false; }  // from now on
  bool ExitInStep(int status);  // by its own doing; false: it is in no step

  // ---- from its node ----
  void Admitted();
  void TakeOrder(const WorkerOrder& order);
  void TakeAbort(Generation generation);
  void Ask();
  PageReading Read() const;
  PageReading StoreStop(Step stop_at);

  // ---- seen from outside ----
  Word word() const { return word_; }
  Rank rank() const { return run_ ? run_->rank : kNoRank; }  // of the generation its trainer is in
  Generation verified() const { return report_.verified.generation; }
  Generation frozen() const { return report_.frozen; }
  bool Holds(Step step) const { return word_.state == WordState::kFrozen && word_.step == step; }
  const Content& content() const { return content_; }
  bool parked() const { return parked_; }
  bool spoiled() const { return spoiled_; }
  bool deaf() const { return deaf_ || hung_; }
  bool Complete() const { return word_.state == WordState::kOpen || word_.state == WordState::kFrozen; }
  const std::vector<Peer>& peers() const;
  std::string Describe() const;

 private:
  struct Run {
    Generation generation;
    Rank rank;
    uint32_t world = 0;
    std::vector<Peer> peers;
    bool over = false;
  };
  // One reader of this worker's state. It ends once, by its reader, by this worker, or with either.
  struct Serve {
    std::shared_ptr<Worker> source;
    bool cancelled = false;
    bool ended = false;
    void End();
  };
  struct Pull {
    std::shared_ptr<Task> task;
    Content arrived{};
    size_t next = 0;    // chunk
    size_t source = 0;  // in the order's list
    int round = 0;
    uint32_t retries = 0;
    Time begin{};
    std::shared_ptr<Serve> serve;
    Incarnation from;
  };
  enum class At { kStarting, kWaiting, kConnecting, kComputing, kInCollective, kUpdating, kGone };

  // In one of this worker's threads: never once it is dead, later while it stands still.
  void Do(std::function<void()> what);
  void Later(Duration mean, std::function<void()> what);
  // In the trainer's: only when it has not gone on otherwise, and does not hang.
  void LaterTrainer(Duration mean, std::function<void()> what);

  // control
  void Changed();
  void Notify();
  void SendReady();
  void SendReport();
  void Reconcile();
  bool Freeze(Generation generation);
  void Fail(const std::string& why);
  void BreakOut(Generation generation);
  void EndRun();
  void SetWord(Generation generation, Step step, WordState state) { word_ = {generation, step, state}; }

  // trainer
  void NextStep();
  void TryTurn();
  void TryFinish();
  void Park();
  bool MayBegin(Step step);
  bool TakeResume();
  bool Last(Step step) const;
  void StartStep(bool regrouped);
  void Compute();
  void EnterCollective();
  void OnGang(const GangResult& result) override;
  void Broken(const std::string& why);
  void Update();
  void WriteChunk(size_t chunk);
  void EndUpdate();
  void Torn();
  void Exit(int status);

  // mover and serving
  bool Busy() const { return overwriting_; }
  void StartRecovery();
  void CloseServing();
  std::shared_ptr<Serve> BeginServe(Generation generation, Step step);
  void RunTask(const std::shared_ptr<Task>& task);
  void TaskDone(const std::shared_ptr<Task>& task);
  void HashOwn(const std::shared_ptr<Task>& task);
  void DoEcho(const std::shared_ptr<Task>& task);
  void WhenFree(const std::shared_ptr<Task>& task, std::function<void()> then);
  void NextSource(const std::shared_ptr<Pull>& pull);
  void SourceFailed(const std::shared_ptr<Pull>& pull, Duration after);
  void NextChunk(const std::shared_ptr<Pull>& pull);
  void ChunkArrived(const std::shared_ptr<Pull>& pull, uint64_t chunk);
  void Pulled(const std::shared_ptr<Pull>& pull);
  void EndPull(const std::shared_ptr<Pull>& pull, bool complete);
  void Verify(const std::shared_ptr<Task>& task, const locum::Verified& verified);

  World* const world_;
  Node* const node_;

  bool alive_ = true, asleep_ = false, stuck_ = false;
  std::vector<std::function<void()>> backlog_;
  Pipe to_agent_;

  Word word_;
  Content content_{};
  Position position_ = Position::kStarting;
  Step starting_, stop_at_ = kNoStop;
  bool spoiled_ = false;

  bool joined_ = false, ready_ = false;
  std::optional<WorkerOrder> order_;
  Generation newest_;
  WorkerState report_;
  bool report_asked_ = false, turn_asked_ = false;
  std::string error_, torn_;
  bool finished_ = false, attention_ = true;

  At at_ = At::kStarting;
  uint64_t activity_ = 0;
  bool parked_ = false, in_finish_ = false;
  std::shared_ptr<Run> run_;
  std::shared_ptr<Gang> gang_;
  std::optional<WorkerOrder> resume_;
  bool regroup_due_ = false, run_frozen_ = false;
  std::optional<Step> stop_step_, finish_step_;
  bool committed_here_ = false, first_commit_due_ = false;
  int64_t first_commit_ns_ = 0;

  std::shared_ptr<Task> task_;
  std::optional<WorkerOrder> attempted_;
  bool attempt_failed_ = false, overwriting_ = false, closed_ = false;
  std::function<void()> when_free_;
  std::vector<std::shared_ptr<Serve>> serves_;

  bool tear_next_ = false, stop_next_ = false, break_next_ = false, deaf_ = false, hung_ = false, hang_next_ = false;
};

}  // namespace locum::sim
