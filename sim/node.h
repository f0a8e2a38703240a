// A node of the simulator: the real decisions of keeper and agent (src/node), each a process of its own that can die,
// stand still and be started again, and the workers below them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/keeper_core.h"
#include "node/node_core.h"
#include "sim/link.h"
#include "sim/world.h"

namespace locum::sim {

// What the node's keeper hands from one agent to the next: the real one encodes it (runtime/notes_codec.h).
struct NotesShelf {
  std::map<std::string, node::Notes> notes;  // by the name under which the keeper keeps them
  uint64_t last = 0;
};

// One agent process: src/runtime/agent.cc over a simulated host.
class Agent : public std::enable_shared_from_this<Agent> {
 public:
  Agent(World* world, Node* node, Incarnation id, int32_t pid);
  void Begin();
  void Put(node::Event event);
  void Sleep() { asleep_ = true; }
  void Wake();
  void End();
  bool alive() const { return alive_; }
  bool asleep() const { return asleep_; }
  bool up() const { return link_->up(); }
  std::string Describe() const;

 private:
  void Look();  // soon
  void Pass();
  void Schedule();
  void Step(const node::Event& event);
  std::vector<PageReading> ReadPages() const;
  void Do(node::Introduce& a);
  void Do(node::IntroduceAnew&) { link_->ConnectAgain(); }
  void Do(node::SendReady& a) { link_->SendReady(a.slot, a.worker, a.info); }
  void Do(node::SendReport& a) { link_->SendReport(a.report); }
  void Do(node::StartWorker& a);
  void Do(node::EndWorker& a);
  void Do(node::Forget& a);
  void Do(node::EndNode& a);
  void Do(node::Relay& a);
  void Do(node::Abort& a);
  void Do(node::SaveStacks& a);
  void Do(node::AskAgain& a);
  void Do(node::StoreStop& a);
  void Do(node::Draw& a);
  void Do(node::Remember& a);
  void Do(node::Note&) {}
  void Do(node::WakeAt& a);

  World* const world_;
  Node* const node_;
  node::NodeCore core_;
  std::shared_ptr<Link> link_;
  std::deque<node::Event> inbox_, echoes_;
  bool alive_ = true, asleep_ = false, introduced_ = false, look_asked_ = false;
  Time wake_at_ = kNever, scheduled_ = kNever;
};

class Node {
 public:
  Node(World* world, Machine number, std::string name);
  ~Node();
  Machine number() const { return number_; }
  const std::string& name() const { return name_; }

  // ---- what is done to it ----
  void Start();      // its keeper; nothing of it runs
  void Kill();       // every process of it
  void KillAgent();  // the keeper starts another one
  void SleepAgent();
  void WakeAgent();
  void Leave();  // SIGTERM to its keeper
  bool up() const { return up_; }
  bool leaving() const { return leaving_; }
  bool agent_asleep() const { return agent_ && agent_->asleep(); }
  bool Stuck() const;
  bool Hears() const { return agent_ && !agent_->asleep() && agent_->up(); }  // the coordinator, and it hears it
  std::vector<std::shared_ptr<Worker>> Workers() const;                       // whose process lives
  std::string Describe() const;

  // Its clock. Agent and keeper share it.
  Time Clock() const;
  Time WhenClockShows(Time local) const;

  // ---- from its workers ----
  void JoinAskedBy(const std::shared_ptr<Worker>& worker);
  void ProcessEnded(const std::shared_ptr<Worker>& worker, ProcessEnd end);
  void Heard(const std::shared_ptr<Worker>& worker, const JoinInfo& info);
  void Heard(const std::shared_ptr<Worker>& worker, const WorkerState& state);

  // ---- from its agent, over the channel to the keeper ----
  void ToKeeper(keep::Event event);
  void SlotOf(Incarnation worker, Slot slot) { slots_[worker] = slot; }
  std::shared_ptr<Worker> Find(Incarnation worker) const;
  NotesShelf shelf;

 private:
  void KeeperStep(const keep::Event& event);
  void ToAgent(node::Event event);
  void Do(const keep::StartAgent&);
  void Do(const keep::LeaveAgent&);
  void Do(const keep::KillAgent&);
  void Do(const keep::TellHello& a);
  void Do(const keep::TellWorker& a);
  void Do(const keep::LaunchWorker& a);
  void Do(const keep::TermWorker& a);
  void Do(const keep::KillWorker& a);
  void Do(const keep::KillReaper&) {}
  void Do(const keep::Admit& a);
  void Do(const keep::CloseDoor&) {}
  void Do(const keep::RefuseJoin&) {}
  void Do(const keep::DropWorker& a);
  void Do(const keep::WakeAt& a);
  void Do(const keep::EndKeeper&);
  void Do(const keep::Note&) {}
  void AgentIsGone(ProcessEnd end);
  // Runs `what` unless this life of the node has ended by then.
  void Later(Duration mean, std::function<void()> what);

  World* const world_;
  const Machine number_;
  const std::string name_;
  const int64_t clock_offset_, clock_ppm_;
  bool up_ = false, leaving_ = false;
  uint64_t life_ = 0;
  std::unique_ptr<keep::KeeperCore> keeper_;
  std::deque<keep::Event> keeper_inbox_;
  bool keeper_busy_ = false;
  std::shared_ptr<Agent> agent_;
  std::unique_ptr<Pipe> to_agent_, to_keeper_;
  std::map<Incarnation, Slot> slots_;
  std::map<Incarnation, std::shared_ptr<Worker>> workers_;
  int32_t last_pid_ = 0;
  Time keeper_wake_ = kNever;
};

}  // namespace locum::sim
