// The keeper of a simulated node, and what is done to the node.
#include "sim/node.h"

#include <algorithm>
#include <utility>

#include "sim/worker.h"

namespace locum::sim {
namespace {

constexpr Duration Us(int64_t us) { return std::chrono::microseconds(us); }
constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration kLocal = Us(30);
constexpr ProcessEnd kKilled{0, 9};

}  // namespace

Node::Node(World* world, Machine number, std::string name)
    : world_(world),
      number_(number),
      name_(std::move(name)),
      clock_offset_(world->options.drift ? static_cast<int64_t>(world->stage.random().Below(1'000'000'000'000)) : 0),
      clock_ppm_(world->options.drift ? static_cast<int64_t>(world->stage.random().Below(401)) - 200 : 0) {}

Node::~Node() = default;

Time Node::Clock() const {
  const int64_t now = world_->stage.now().ns;
  return Time{clock_offset_ + now + now / 1'000'000 * clock_ppm_};
}

// Never before.
Time Node::WhenClockShows(Time local) const {
  if (local == kNever) return kNever;
  const int64_t left = std::max<int64_t>(0, (local - Clock()).count());
  return world_->stage.now() + Duration(clock_ppm_ == 0 ? left : left + left / 1'000'000 * 200 + 1000);
}

void Node::Later(Duration mean, std::function<void()> what) {
  world_->stage.After(world_->stage.Delay(mean), [this, life = life_, what = std::move(what)] {
    if (up_ && life_ == life) what();
  });
}

// ---- What is done to it --------------------------------------------------------------------------------------

void Node::Start() {
  LOCUM_CHECK(!up_);
  up_ = true;
  leaving_ = false;
  ++life_;
  last_pid_ = 100;
  shelf = {};
  to_agent_ = std::make_unique<Pipe>(&world_->stage);
  to_keeper_ = std::make_unique<Pipe>(&world_->stage);
  keeper_ = std::make_unique<keep::KeeperCore>(world_->stage.Draw(), ++last_pid_);
  keeper_wake_ = kNever;
  Later(Ms(2), [this] { KeeperStep(keep::Begin{}); });
}

void Node::Kill() {
  LOCUM_CHECK(up_);
  up_ = false;
  ++life_;
  if (agent_) std::exchange(agent_, nullptr)->End();
  for (auto& [id, worker] : std::exchange(workers_, {})) worker->End(kKilled);
  slots_.clear();
  keeper_inbox_.clear();
}

void Node::KillAgent() {
  if (agent_) AgentIsGone(kKilled);
}

void Node::SleepAgent() {
  if (agent_) agent_->Sleep();
}

void Node::WakeAgent() {
  if (agent_) agent_->Wake();
}

void Node::Leave() {
  leaving_ = true;
  KeeperStep(EndAsked{15});
}

bool Node::Stuck() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& w) { return w.second->stuck(); });
}

std::vector<std::shared_ptr<Worker>> Node::Workers() const {
  std::vector<std::shared_ptr<Worker>> all;
  for (const auto& [id, worker] : workers_) all.push_back(worker);
  return all;
}

std::shared_ptr<Worker> Node::Find(Incarnation worker) const {
  const auto it = workers_.find(worker);
  return it == workers_.end() ? nullptr : it->second;
}

std::string Node::Describe() const {
  std::string text = name_ + (up_ ? " up" : " down") + (agent_ ? ", agent: " + agent_->Describe() : ", no agent");
  for (const auto& [id, worker] : workers_) text += "\n    " + worker->Describe();
  return text;
}

// ---- From its workers ----------------------------------------------------------------------------------------

void Node::JoinAskedBy(const std::shared_ptr<Worker>& worker) {
  if (!up_) return;
  KeeperStep(JoinAsked{worker->id.value, worker->pid, kProtocolVersion, worker->id, kVersion});
}

// The keeper waits for the process's end, the agent sees its connection closed; which comes first is chance.
void Node::ProcessEnded(const std::shared_ptr<Worker>& worker, ProcessEnd end) {
  if (!up_) return;
  const Incarnation id = worker->id;
  world_->stage.After(Us(1), [this, life = life_, id, page = worker->Read()] {
    if (up_ && life_ == life) ToAgent(node::PagesRead{{page}});
    if (up_ && life_ == life) ToAgent(node::WorkerLeft{id, "its connection was closed"});
  });
  Later(Us(200), [this, id, end] {
    workers_.erase(id);
    WorkerEnded ended;
    ended.worker = id;
    ended.started = end;
    KeeperStep(ended);
  });
}

void Node::Heard(const std::shared_ptr<Worker>& worker, const JoinInfo& info) {
  if (up_ && workers_.count(worker->id)) ToAgent(node::WorkerIsReady{worker->id, info});
}

void Node::Heard(const std::shared_ptr<Worker>& worker, const WorkerState& state) {
  if (up_ && workers_.count(worker->id)) ToAgent(node::WorkerSaid{worker->id, state});
}

// ---- The keeper ----------------------------------------------------------------------------------------------

void Node::ToAgent(node::Event event) {
  if (agent_) agent_->Put(std::move(event));
}

void Node::ToKeeper(keep::Event event) {
  to_keeper_->Send(kLocal, [this, life = life_, event = std::move(event)] {
    if (up_ && life_ == life) KeeperStep(event);
  });
}

void Node::KeeperStep(const keep::Event& event) {
  keeper_inbox_.push_back(event);
  if (std::exchange(keeper_busy_, true)) return;
  while (!keeper_inbox_.empty() && up_) {
    const keep::Event next = std::move(keeper_inbox_.front());
    keeper_inbox_.pop_front();
    ++world_->steps_taken;
    for (const keep::Action& action : keeper_->Step(next, Clock())) {
      std::visit([&](const auto& a) { Do(a); }, action);
      if (!up_) break;
    }
  }
  keeper_busy_ = false;
}

void Node::Do(const keep::StartAgent&) {
  agent_ = std::make_shared<Agent>(world_, this, world_->stage.Draw(), ++last_pid_);
  agent_->Begin();
}

void Node::Do(const keep::LeaveAgent&) {
  Later(Ms(1), [this] { AgentIsGone({}); });
}

void Node::Do(const keep::KillAgent&) { AgentIsGone(kKilled); }

void Node::AgentIsGone(ProcessEnd end) {
  if (!agent_) return;
  std::exchange(agent_, nullptr)->End();
  Later(Us(200), [this, end] { KeeperStep(AgentEnded{end, ""}); });
}

void Node::Do(const keep::TellHello& a) {
  to_agent_->Send(kLocal, [this, agent = agent_, hello = a.hello] {
    const auto kept = shelf.notes.find(hello.notes);
    if (agent == agent_) ToAgent(node::KeeperThere{hello, kept == shelf.notes.end() ? node::Notes() : kept->second});
  });
}

void Node::Do(const keep::TellWorker& a) {
  to_agent_->Send(kLocal, [this, agent = agent_, record = a.record] {
    if (agent == agent_) ToAgent(node::WorkerSeen{record});
  });
}

void Node::Do(const keep::LaunchWorker& a) {
  Later(Ms(1), [this, id = a.worker] {
    auto worker = std::make_shared<Worker>(world_, this, slots_[id], id, ++last_pid_);
    workers_[id] = worker;
    world_->workers[id] = worker;
    worker->Begin();
    KeeperStep(WorkerStarted{id, worker->pid});
  });
}

void Node::Do(const keep::TermWorker& a) {
  if (const auto worker = Find(a.worker); worker && !worker->asleep()) {
    Later(Us(100), [worker] { worker->End({0, 15}); });
  }
}

void Node::Do(const keep::KillWorker& a) {
  if (const auto worker = Find(a.worker); worker && !worker->stuck()) {
    Later(Us(100), [worker] { worker->End(kKilled); });
  }
}

void Node::Do(const keep::Admit& a) {
  if (const auto worker = Find(a.worker)) worker->Admitted();
}

void Node::Do(const keep::DropWorker& a) { slots_.erase(a.worker); }

void Node::Do(const keep::WakeAt& a) {
  if (a.when == keeper_wake_) return;
  keeper_wake_ = a.when;
  if (a.when == kNever) return;
  world_->stage.At(WhenClockShows(a.when), [this, life = life_, when = a.when] {
    if (!up_ || life_ != life || keeper_wake_ != when) return;
    keeper_wake_ = kNever;
    KeeperStep(keep::Tick{});
  });
}

void Node::Do(const keep::EndKeeper&) {
  // Also what the keeper has given up.
  Kill();
}

}  // namespace locum::sim
