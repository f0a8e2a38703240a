// A whole cluster in one thread: the real coordinator decisions, with nodes, workers and a network that are models.
// Time is simulated, every delay and choice comes from one seed, so a run can be repeated exactly.
//
// The training model is what the decisions rely on, no more: state s+1 is a function of state s; a collective of
// step s completes only when every rank of a generation has entered it, then each rank learns of it at a time of
// its own, and updates for a while. So ranks are between two states at any moment, as real ones are.
//
// While it runs it checks what must never happen (Violation): a state that is not the one an undisturbed run has,
// a step that every rank committed and that is lost, a generation that goes on while an older one still can.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/coordinator.h"
#include "core/withheld.h"

namespace locum::sim {

// Streams keep their order: a later message never overtakes, so all hops of one stream take the same time.
constexpr Duration kStreamHop = std::chrono::microseconds(300);

struct Options {
  uint64_t seed = 1;
  bool jitter = true;   // false: every delay has its mean, for scripts
  uint64_t steps = 40;  // of the job
  Duration compute = std::chrono::milliseconds(20);
  Duration update = std::chrono::milliseconds(2);
  Duration start = std::chrono::milliseconds(300);  // a worker, from its start to ready
};

struct TimedNote {
  Time when;
  Note note;
};

class Cluster {
 public:
  Cluster(JobSpec spec, Options options);
  ~Cluster();

  void RunFor(Duration duration);
  // False when `limit` passes first.
  bool RunUntil(const std::function<bool()>& done, Duration limit);

  // What is done to the cluster. Names are those of nodes ("node-0" ...); an unknown one is a check failure.
  void StartNode(const std::string& name);
  void AddNode(const std::string& name);    // one more, and starts it
  void KillNode(const std::string& name);   // keeper, agent, workers; connections are reset
  void KillAgent(const std::string& name);  // the keeper starts it again
  void KillWorker(Rank rank);
  void ExitWorker(Rank rank, int status);      // by its own doing, while it computes
  void FailProgram(Rank rank, uint64_t step);  // from now on whoever has this rank exits in this step
  void LeaveNode(const std::string& name);     // its agent is told to end
  void StickWorker(Rank rank);                 // it is killed, and the kernel does not let it end
  void TearWorker(Rank rank);                  // its next update fails half-way
  void StopWorker(Rank rank);                  // it decides by itself that the state it holds is the last
  void HangWorker(Rank rank);                  // its trainer does nothing any more; the library answers
  void SleepWorker(Rank rank);                 // its process does not run any more
  void DeafenWorker(Rank rank);                // its trainer does not leave a collective that breaks
  void DeafenProgram();                        // nor does that of any worker from now on
  void BreakWorker(Rank rank);                 // its next collective breaks, and nobody died
  void SpoilWorker(Rank rank);                 // its state is changed behind everyone's back
  void CutLink(const std::string& name);       // silent: nothing arrives, nothing is reset
  void HealLink(const std::string& name);      // of either
  void CutPeers(const std::string& name);
  void KillCoordinator();
  void StartCoordinator();
  void LoseDatabase();  // while no coordinator runs
  void FailStore();     // nothing can be persisted
  void MendStore();
  Status Adopt();
  void PauseCoordinator(Duration duration);
  Status Failback(const std::string& name);

  Time now() const { return now_; }
  bool ended() const { return ended_; }
  // The newest state that every rank has made, seen from outside and without delay.
  uint64_t made() const { return fully_committed_; }
  int exit_status() const { return exit_status_; }
  ClusterView View() const { return core_->View(); }
  bool store_fails() const { return store_fails_; }
  bool coordinator_up() const { return core_ != nullptr; }
  const std::vector<TimedNote>& notes() const { return notes_; }
  const std::vector<std::string>& violations() const { return violations_; }
  uint32_t StateHolders() const;  // reachable nodes with a worker that does and answers
  bool StateLost() const;         // no worker that runs holds a state that counts
  std::string Describe() const;   // every node and worker, for a person
  std::vector<std::string> NodeNames() const;
  bool NodeUp(const std::string& name) const { return nodes_.at(name).up; }
  bool Stuck(const std::string& name) const;
  bool NeverTrained(const std::string& name) const;  // none of its workers has
  bool LinkCut(const std::string& name) const { return nodes_.at(name).Unreached(); }
  Random& random() { return random_; }

 private:
  struct Worker;
  struct SimNode {
    std::string name;
    bool up = false;
    bool cut = false;    // from everyone
    bool apart = false;  // from its peers; the coordinator hears it
    bool Unreached() const { return cut || apart; }
    bool agent = false;
    bool connecting = false;
    StreamId stream = 0;  // 0: not connected
    bool welcomed = false;
    Incarnation keeper, agent_id;
    Term term;
    Incarnation cluster;
    bool leaving = false;
    std::string job;
    std::map<Slot, std::shared_ptr<Worker>> workers;
    NodeOrder order;
    Time reported_at{};
    bool reported_waiting = false;
    uint64_t epoch = 0;  // grows with each start and kill; late callbacks of an older one do nothing
  };
  struct Worker {
    Incarnation id;
    SimNode* node = nullptr;
    Slot slot;
    bool alive = true;
    bool ready = false;
    std::optional<WorkerExit> exit;
    WorkerState state;
    uint64_t value = 0;  // stands for the bytes of the state
    WorkerOrder order;
    uint64_t activity = 0;  // what the trainer does now; a callback of an older one does nothing
    bool tear_next = false;
    bool stop_next = false;
    bool pulling = false;
    bool stuck = false;
    bool deaf = false;
    Time asleep_since = kNever;
    bool break_next = false;
    Time unparked_since = kNever;  // frozen, and the trainer has not come back
    Time collective_since{};
    Generation group;  // the generation the trainer thinks it is in: that of its last NextStep
    Rank rank = kNoRank;
    std::vector<Peer> peers;
  };
  struct Scheduled {
    Time when;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Scheduled& o) const { return std::pair(o.when, o.order) < std::pair(when, order); }
  };
  struct Collective {
    std::map<Incarnation, std::pair<std::shared_ptr<Worker>, uint64_t>> entered;  // with the trainer's activity
    std::vector<Peer> peers;
    bool complete = false;
  };

  void ForHolders(Rank rank, const std::function<void(Worker&)>& what);
  void After(Duration delay, std::function<void()> what);
  Duration Delay(Duration mean);
  Duration Hop() { return Delay(std::chrono::microseconds(300)); }
  void Deliver(const Event& event);
  void Execute(const std::vector<Action>& actions);
  void Execute(const Action& action);
  void Connect(SimNode& node);
  void DropStream(SimNode& node, bool tell);
  void SendReport(SimNode& node);
  bool Waits(const Worker& worker) const;
  void Heartbeat(const std::string& name, uint64_t epoch);
  void TakeOrder(SimNode& node, const NodeOrder& order);
  void StartWorker(SimNode& node, Slot slot);
  void EndWorker(Worker& worker, WorkerExit exit);
  Incarnation TrainsFor(const SimNode& node) const;
  Status Ask(const std::function<Event(uint64_t)>& make);
  void Apply(const std::shared_ptr<Worker>& worker);
  void Freeze(const std::shared_ptr<Worker>& worker);
  void Recover(const std::shared_ptr<Worker>& worker);
  void Run(const std::shared_ptr<Worker>& worker);
  void BeginStep(const std::shared_ptr<Worker>& worker);
  void EnterCollective(const std::shared_ptr<Worker>& worker);
  void CollectiveDone(const std::shared_ptr<Worker>& worker, uint64_t activity);
  void WatchLateness(const std::shared_ptr<Worker>& worker);
  void Park(const std::shared_ptr<Worker>& worker);
  void Break(const std::shared_ptr<Worker>& worker, const std::string& why);
  void BreakPeers(const Worker& dead);
  void TryComplete(Generation generation, Collective& collective);
  void BreakIfPeerDead(const std::shared_ptr<Worker>& worker);
  std::shared_ptr<Worker> Find(Incarnation id);
  uint64_t ValueOf(uint64_t step);
  void Violation(const std::string& what);
  void CheckCommit(const Worker& worker);

  JobSpec spec_;
  Options options_;
  Random random_;
  Time now_{};
  uint64_t scheduled_ = 0;
  std::priority_queue<Scheduled> queue_;
  std::map<std::string, SimNode> nodes_;
  std::vector<std::shared_ptr<Worker>> all_workers_;
  std::map<std::pair<Generation, uint64_t>, Collective> collectives_;
  std::vector<uint64_t> values_;
  std::unique_ptr<Coordinator> core_;
  std::shared_ptr<const PersistentState> stored_;
  Term term_;
  Time paused_until_{};
  std::vector<Event> held_;  // arrived while the coordinator paused
  Withheld withheld_;
  bool store_fails_ = false, store_told_ = false;
  uint64_t core_epoch_ = 0;
  Time wake_ = kNever;
  StreamId next_stream_ = 0;
  std::map<StreamId, std::string> streams_;
  std::map<uint64_t, Status> answers_;
  uint64_t next_request_ = 0;
  std::map<uint64_t, std::map<Rank, Generation>> committed_;  // step -> which ranks made it, and when last
  Generation newest_running_;
  uint64_t fully_committed_ = 0;
  bool all_deaf_ = false;
  Rank failing_rank_ = kNoRank;
  uint64_t failing_step_ = 0;
  bool ended_ = false;
  int exit_status_ = 0;
  std::vector<TimedNote> notes_;
  std::vector<std::string> violations_;
};

}  // namespace locum::sim
