// The coordinator's process in the simulator: the real decisions, their store, what is withheld while that fails, and the
// streams that lead to it. It can die (at a given effect, too), stand still, lose its database or find an old one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/coordinator.h"
#include "core/withheld.h"
#include "sim/world.h"

namespace locum::sim {

struct TimedNote {
  Time when;
  Note note;
};

class Control {
 public:
  explicit Control(World* world);
  ~Control();

  // ---- what is done to it ----
  void Start();
  void Kill();
  void KillAtEffect(
      uint32_t effects);  // before the n-th thing that it does to the world from now on: a persist, an order
  void Pause(Duration duration);
  void FailStore() { store_fails_ = true; }
  void MendStore();
  void LoseDatabase();        // while it does not run
  void KeepOldDatabase();     // as it is now
  void RestoreOldDatabase();  // while it does not run
  Status Failback(const std::string& node);
  Status Adopt();

  bool up() const { return core_ != nullptr; }
  bool paused() const { return world_->stage.now() < paused_until_; }
  bool store_fails() const { return store_fails_; }
  bool ended() const { return ended_; }
  int exit_status() const { return exit_status_; }
  const std::string& end_reason() const { return end_reason_; }
  ClusterView View() const { return core_->View(); }
  const std::shared_ptr<const PersistentState>& stored() const { return stored_; }
  const std::vector<TimedNote>& notes() const { return notes_; }
  uint64_t events() const { return events_; }

  // ---- from agents ----
  // Null when nothing listens. The hello is on its way.
  std::shared_ptr<Stream> Accept(Machine node, const NodeHello& hello);
  void Deliver(const Event& event);

 private:
  Status Ask(const std::function<Event(uint64_t)>& make);
  void Execute(const std::vector<Action>& actions);
  void Execute(const Action& action, Time when);  // `when` it was decided
  bool Crashes();
  void TellStore();
  void Wake(Time when);

  World* const world_;
  std::unique_ptr<Coordinator> core_;
  uint64_t life_ = 0;
  std::shared_ptr<const PersistentState> stored_, old_;
  Time paused_until_{};
  std::vector<Event> held_;  // arrived while it stood still
  Withheld withheld_;
  bool store_fails_ = false, store_told_ = false;
  uint32_t crash_in_ = 0;
  Time wake_ = kNever, scheduled_ = kNever;
  StreamId last_stream_ = 0;
  std::map<StreamId, std::shared_ptr<Stream>> streams_;
  std::vector<std::weak_ptr<Stream>> all_streams_;
  std::map<uint64_t, Status> answers_;
  uint64_t last_request_ = 0, events_ = 0;
  bool ended_ = false;
  int exit_status_ = 0;
  std::string end_reason_;
  std::vector<TimedNote> notes_;
};

}  // namespace locum::sim
