#include "runtime/agent.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "node/node_core.h"
#include "runtime/notes_codec.h"

namespace locum {
namespace {

constexpr size_t kMaxInbox = 1024;
constexpr auto kSensorPeriod = std::chrono::seconds(1);

// What other threads hand to the loop.
class Inbox {
 public:
  explicit Inbox(AgentHost* host) : host_(host) {}

  void Put(LinkEvent event) {
    {
      std::lock_guard lock(mutex_);
      // An order is a whole state, so in a flood of them the ones in between may go.
      if (events_.size() >= kMaxInbox) {
        auto order = std::find_if(events_.begin(), events_.end(),
                                  [](const LinkEvent& e) { return std::holds_alternative<LinkOrder>(e); });
        events_.erase(order == events_.end() ? events_.begin() : order);
      }
      events_.push_back(std::move(event));
    }
    host_->Wake();
  }

  void Put(const Usage& usage) {
    {
      std::lock_guard lock(mutex_);
      usage_ = usage;
    }
    host_->Wake();
  }

  std::deque<LinkEvent> TakeEvents() {
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

  std::optional<Usage> TakeUsage() {
    std::lock_guard lock(mutex_);
    return std::exchange(usage_, std::nullopt);
  }

 private:
  AgentHost* host_;
  std::mutex mutex_;
  std::deque<LinkEvent> events_;
  std::optional<Usage> usage_;
};

// Reads the sensors each second, in a thread of its own: a dead disk blocks who asks for its free space.
class SensorThread {
 public:
  SensorThread(UsageSensor* sensor, Inbox* inbox) : thread_([this, sensor, inbox] { Run(sensor, inbox); }) {}
  ~SensorThread() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void Run(UsageSensor* sensor, Inbox* inbox) {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      lock.unlock();
      inbox->Put(sensor->Read());
      lock.lock();
      changed_.wait_for(lock, kSensorPeriod, [this] { return stop_; });
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

class AgentLoop {
 public:
  AgentLoop(const AgentSetup& setup, AgentHost* host, CoordinatorLink* link, Inbox* inbox)
      : setup_(setup),
        host_(host),
        link_(link),
        inbox_(inbox),
        core_(node::Identity{setup.name, setup.address, setup.dir, Incarnation(host->Draw()), setup.own_pid}) {}

  void Run() {
    while (!keeper_gone_) {
      std::vector<AgentHostEvent> events = host_->Wait(wake_at_);
      Step(node::PagesRead{host_->ReadPages()});
      for (AgentHostEvent& event : events) std::visit([&](auto& e) { Take(e); }, event);
      for (LinkEvent& event : inbox_->TakeEvents()) std::visit([&](auto& e) { Take(e); }, event);
      if (std::optional<Usage> usage = inbox_->TakeUsage()) Step(node::UsageRead{*usage});
      Step(node::Tick{});
    }
    if (link_started_) link_->Stop();
  }

 private:
  void Step(const node::Event& event) {
    for (node::Action& action : core_.Step(event, host_->Now())) {
      std::visit([&](auto& a) { Do(a); }, action);
    }
    // What actions brought back; it may lead to more actions, never to more of the same.
    while (!echoes_.empty()) {
      node::Event echo = std::move(echoes_.front());
      echoes_.pop_front();
      Step(echo);
    }
  }

  void Take(KeeperHello& hello) {
    Result<node::Notes> notes = DecodeNotes(hello.notes);
    if (!notes.ok()) host_->Log("notes_ignored", notes.status().message());
    Step(node::KeeperThere{hello, notes.ok() ? *notes : node::Notes()});
  }
  void Take(WorkerRecord& record) { Step(node::WorkerSeen{record}); }
  void Take(ReadyHeard& heard) { Step(node::WorkerIsReady{heard.worker, std::move(heard.info)}); }
  void Take(StateHeard& heard) { Step(node::WorkerSaid{heard.worker, std::move(heard.state)}); }
  void Take(ConnectionLost& lost) { Step(node::WorkerLeft{lost.worker, lost.why}); }
  void Take(PageReading& page) { Step(node::PagesRead{{page}}); }
  void Take(StacksWritten& written) { Step(node::StacksSaved{written.worker}); }
  void Take(KeeperGone&) { keeper_gone_ = true; }
  void Take(LinkUp& up) { Step(node::CoordinatorUp{up.welcome}); }
  void Take(LinkOrder& order) { Step(node::Ordered{std::move(order.order)}); }
  void Take(LinkRefused& refused) { Step(node::CoordinatorRefused{refused.reason, refused.end}); }
  void Take(LinkLost& lost) { Step(node::CoordinatorLost{lost.reason}); }

  void Do(node::Introduce& a) {
    if (std::exchange(link_started_, true)) {
      link_->UpdateHello(a.hello);
    } else {
      link_->Start(a.hello, [this](LinkEvent event) { inbox_->Put(std::move(event)); });
    }
  }
  void Do(node::IntroduceAnew&) { link_->ConnectAgain(); }
  void Do(node::SendReady& a) { link_->SendReady(a.slot, a.worker, a.info); }
  void Do(node::SendReport& a) { link_->SendReport(a.report); }
  void Do(node::StartWorker& a) {
    StartWorker start;
    start.slot = a.slot;
    start.worker = a.worker;
    start.command = a.command;
    start.log = a.log;
    start.grace = a.grace;
    start.welcome = WorkerWelcome{a.job,          setup_.name, a.slot, a.worker,          setup_.token,
                                  setup_.address, a.step_log,  a.seed, a.workers_per_node};
    Status sent = host_->Send(start);
    if (sent.ok()) return;
    WorkerRecord failed;
    failed.slot = a.slot;
    failed.worker = a.worker;
    failed.ended = true;
    failed.exit.status = 126;
    failed.exit.what = "cannot start: " + sent.message();
    echoes_.push_back(node::WorkerSeen{failed});
  }
  void Do(node::EndWorker& a) { ToKeeper(a.stop); }
  void Do(node::Forget& a) { ToKeeper(ForgetWorker{a.worker}); }
  void Do(node::EndNode& a) { ToKeeper(a.shutdown); }
  void Do(node::Relay& a) {
    if (!a.measure.empty()) echoes_.push_back(node::LogMeasured{a.worker, host_->FileBytes(a.measure)});
    host_->Relay(a.worker, a.order);
  }
  void Do(node::Abort& a) { host_->Abort(a.worker, a.generation); }
  void Do(node::SaveStacks& a) { host_->SaveStacks(a.worker, a.pid, a.file); }
  void Do(node::AskAgain& a) { host_->AskAgain(a.worker); }
  void Do(node::StoreStop& a) { echoes_.push_back(node::StopStored{host_->StoreStop(a.worker, a.stop_at)}); }
  void Do(node::Draw& a) {
    node::Drawn drawn;
    for (uint32_t i = 0; i < a.count; ++i) drawn.fresh.push_back(Incarnation(host_->Draw()));
    echoes_.push_back(std::move(drawn));
  }
  void Do(node::Remember& a) { ToKeeper(RememberNotes{EncodeNotes(a.notes)}); }
  void Do(node::Note& a) { host_->Log(a.name, a.text); }
  void Do(node::WakeAt& a) { wake_at_ = a.when; }

  template <class M>
  void ToKeeper(const M& message) {
    Status sent = host_->Send(message);
    if (!sent.ok()) host_->Log("keeper_not_told", sent.message());
  }

  const AgentSetup& setup_;
  AgentHost* host_;
  CoordinatorLink* link_;
  Inbox* inbox_;
  node::NodeCore core_;
  std::deque<node::Event> echoes_;
  Time wake_at_ = kNever;
  bool link_started_ = false;
  bool keeper_gone_ = false;
};

}  // namespace

int RunAgent(const AgentSetup& setup, AgentHost* host, CoordinatorLink* link, UsageSensor* sensor) {
  Inbox inbox(host);
  SensorThread sensors(sensor, &inbox);
  AgentLoop(setup, host, link, &inbox).Run();
  return 0;
}

}  // namespace locum
