// The agent of a simulated node.
#include <algorithm>
#include <utility>

#include "sim/node.h"
#include "sim/worker.h"

namespace locum::sim {
namespace {

constexpr Duration Us(int64_t us) { return std::chrono::microseconds(us); }
constexpr Duration Ms(int64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration kLocal = Us(30);

node::Identity IdentityOf(const Node& node, Incarnation id, int32_t pid) {
  return {node.name(), "10.0.0." + std::to_string(node.number() + 1), "/" + node.name(), id, pid};
}

}  // namespace

Agent::Agent(World* world, Node* node, Incarnation id, int32_t pid)
    : world_(world), node_(node), core_(IdentityOf(*node, id, pid)) {}

void Agent::Begin() {
  link_ = std::make_shared<Link>(world_, node_->number(), [this](LinkEvent event) {
    if (auto* up = std::get_if<LinkUp>(&event)) Put(node::CoordinatorUp{up->welcome});
    if (auto* order = std::get_if<LinkOrder>(&event)) Put(node::Ordered{std::move(order->order)});
    if (auto* refused = std::get_if<LinkRefused>(&event)) Put(node::CoordinatorRefused{refused->reason, refused->end});
    if (auto* lost = std::get_if<LinkLost>(&event)) Put(node::CoordinatorLost{lost->reason});
  });
  wake_at_ = Time{};
  world_->stage.After(world_->stage.Delay(Ms(20)), [self = shared_from_this()] { self->Look(); });
}

void Agent::Put(node::Event event) {
  if (!alive_) return;
  inbox_.push_back(std::move(event));
  Look();
}

void Agent::Wake() {
  asleep_ = false;
  Look();
}

void Agent::End() {
  alive_ = false;
  link_->End();
}

void Agent::Look() {
  if (!alive_ || asleep_ || std::exchange(look_asked_, true)) return;
  world_->stage.After(world_->stage.Delay(Us(20)), [self = shared_from_this()] {
    self->look_asked_ = false;
    if (self->alive_ && !self->asleep_) self->Pass();
  });
}

// One turn of its loop. It has heard nothing before its keeper's hello.
void Agent::Pass() {
  Step(node::PagesRead{ReadPages()});
  std::deque<node::Event> events = std::exchange(inbox_, {});
  for (const node::Event& event : events) Step(event);
  Step(node::Tick{});
  if (alive_) Schedule();
}

void Agent::Step(const node::Event& event) {
  if (!alive_) return;
  ++world_->steps_taken;
  for (node::Action& action : core_.Step(event, node_->Clock())) {
    std::visit([&](auto& a) { Do(a); }, action);
  }
  while (!echoes_.empty()) {
    const node::Event echo = std::move(echoes_.front());
    echoes_.pop_front();
    Step(echo);
  }
}

std::vector<PageReading> Agent::ReadPages() const {
  std::vector<PageReading> pages;
  for (const auto& worker : node_->Workers()) pages.push_back(worker->Read());
  return pages;
}

std::string Agent::Describe() const { return link_->Describe() + (asleep_ ? ", asleep" : ""); }

void Agent::Do(node::Introduce& a) {
  if (std::exchange(introduced_, true)) {
    link_->UpdateHello(a.hello);
  } else {
    link_->Start(a.hello);
  }
}

void Agent::Do(node::StartWorker& a) {
  node_->SlotOf(a.worker, a.slot);
  node_->ToKeeper(keep::StartAsked{a.slot, a.worker, a.grace, a.log, a.step_log});
}

void Agent::Do(node::EndWorker& a) { node_->ToKeeper(a.stop); }
void Agent::Do(node::Forget& a) { node_->ToKeeper(ForgetWorker{a.worker}); }
void Agent::Do(node::EndNode& a) { node_->ToKeeper(a.shutdown); }

void Agent::Do(node::Relay& a) {
  if (!a.measure.empty()) echoes_.push_back(node::LogMeasured{a.worker, 1});
  if (const auto worker = node_->Find(a.worker)) {
    world_->stage.After(kLocal, [worker, order = a.order] { worker->TakeOrder(order); });
  }
}

void Agent::Do(node::Abort& a) {
  if (const auto worker = node_->Find(a.worker)) {
    world_->stage.After(kLocal, [worker, generation = a.generation] { worker->TakeAbort(generation); });
  }
}

void Agent::Do(node::SaveStacks& a) {
  world_->stage.After(Ms(20), [self = shared_from_this(), worker = a.worker] { self->Put(node::StacksSaved{worker}); });
}

void Agent::Do(node::AskAgain& a) {
  if (const auto worker = node_->Find(a.worker)) {
    world_->stage.After(kLocal, [worker] { worker->Ask(); });
  }
}

void Agent::Do(node::StoreStop& a) {
  if (const auto worker = node_->Find(a.worker)) {
    echoes_.push_back(node::StopStored{worker->StoreStop(a.stop_at)});
  } else {
    PageReading none;
    none.worker = a.worker;
    echoes_.push_back(node::StopStored{none});
  }
}

void Agent::Do(node::Draw& a) {
  node::Drawn drawn;
  for (uint32_t i = 0; i < a.count; ++i) drawn.fresh.push_back(world_->stage.Draw());
  echoes_.push_back(std::move(drawn));
}

void Agent::Do(node::Remember& a) {
  const std::string name = ToHex(++node_->shelf.last);
  if (node_->shelf.notes.size() > 8) node_->shelf.notes.erase(node_->shelf.notes.begin());
  node_->shelf.notes[name] = a.notes;
  node_->ToKeeper(RememberNotes{name});
}

void Agent::Do(node::WakeAt& a) { wake_at_ = a.when; }

// One entry in the stage's list at a time, or a few where a wish became earlier.
void Agent::Schedule() {
  if (wake_at_ == kNever) return;
  const Time when = node_->WhenClockShows(wake_at_);
  if (when >= scheduled_) return;
  scheduled_ = when;
  world_->stage.At(when, [self = shared_from_this(), when] {
    if (!self->alive_ || self->scheduled_ != when) return;
    self->scheduled_ = kNever;
    if (self->node_->Clock() >= self->wake_at_) return self->Look();
    self->Schedule();
  });
}

}  // namespace locum::sim
