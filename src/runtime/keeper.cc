#include "runtime/keeper.h"

#include <map>
#include <type_traits>
#include <utility>

#include "node/keeper_core.h"

namespace locum {
namespace {

class KeeperLoop {
 public:
  KeeperLoop(KeeperHost* host, int32_t own_pid) : host_(host), core_(Incarnation(host->Draw()), own_pid) {}

  int Run() {
    Step(keep::Begin{});
    while (!over_) {
      std::vector<KeeperHostEvent> events = host_->Wait(wake_at_);
      for (const KeeperHostEvent& event : events) {
        std::visit([&](const auto& e) { Take(e); }, event);
        if (over_) return status_;
      }
      Step(keep::Tick{});  // after the inputs, so that a late wake-up does not act on a stale view
    }
    return status_;
  }

 private:
  template <class E>
  void Take(const E& event) {
    if constexpr (std::is_same_v<E, StartWorker>) {
      starts_.emplace(event.worker, event);
      Step(keep::StartAsked{event.slot, event.worker, event.grace, event.log, event.welcome.step_log});
    } else {
      Step(event);
    }
  }

  void Step(const keep::Event& event) {
    for (const keep::Action& action : core_.Step(event, host_->Now())) {
      std::visit([&](const auto& a) { Do(a); }, action);
    }
  }

  void Do(const keep::StartAgent&) { host_->StartAgent(); }
  void Do(const keep::LeaveAgent&) { host_->LeaveAgent(); }
  void Do(const keep::KillAgent&) { host_->KillAgent(); }
  void Do(const keep::TellHello& a) { host_->TellHello(a.hello); }
  void Do(const keep::TellWorker& a) { host_->TellWorker(a.record); }
  void Do(const keep::LaunchWorker& a) { host_->StartWorker(starts_.at(a.worker)); }
  void Do(const keep::TermWorker& a) { host_->TermWorker(a.worker); }
  void Do(const keep::KillWorker& a) { host_->KillWorker(a.worker); }
  void Do(const keep::KillReaper& a) { host_->KillReaper(a.worker); }
  void Do(const keep::Admit& a) {
    Status admitted = host_->Admit(a.connection, starts_.at(a.worker).welcome);
    if (!admitted.ok()) host_->Log("join_failed", admitted.message());
  }
  void Do(const keep::CloseDoor&) { host_->CloseDoor(); }
  void Do(const keep::RefuseJoin& a) { host_->RefuseJoin(a.connection, a.text); }
  void Do(const keep::DropWorker& a) {
    host_->DropWorker(a.worker);
    starts_.erase(a.worker);
  }
  void Do(const keep::WakeAt& a) { wake_at_ = a.when; }
  void Do(const keep::EndKeeper& a) {
    if (!a.reason.empty()) {
      host_->Log("node_ended", a.reason);
      if (a.status != 0) host_->Complain(a.reason);
    }
    status_ = a.status;
    over_ = true;
  }
  void Do(const keep::Note& a) { host_->Log(a.name, a.text); }

  KeeperHost* host_;
  keep::KeeperCore core_;
  std::map<Incarnation, StartWorker> starts_;
  Time wake_at_ = kNever;
  bool over_ = false;
  int status_ = 0;
};

}  // namespace

int RunKeeper(KeeperHost* host, int32_t own_pid) { return KeeperLoop(host, own_pid).Run(); }

}  // namespace locum
