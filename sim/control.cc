#include "sim/control.h"

#include <algorithm>
#include <utility>

#include "sim/watch.h"

namespace locum::sim {
namespace {

constexpr Duration kStoreRetry = std::chrono::seconds(1);
constexpr Duration kTurn = std::chrono::microseconds(30);

}  // namespace

Control::Control(World* world) : world_(world) {
  world_->network.Watch([this] {
    // Also one whose end here is gone: the other may not have heard of it.
    std::erase_if(all_streams_, [](const auto& known) { return known.expired(); });
    for (const auto& known : all_streams_) {
      if (const auto stream = known.lock()) stream->Look();
    }
  });
}

Control::~Control() = default;

// ---- What is done to it --------------------------------------------------------------------------------------

void Control::Start() {
  LOCUM_CHECK(!core_);
  store_fails_ = false;  // else it would not start
  std::optional<PersistentState> stored;
  if (stored_) stored = *stored_;
  const Term term = stored ? stored->term.Next() : Term(1);
  const Incarnation cluster = stored ? stored->cluster : world_->stage.Draw();
  core_ = std::make_unique<Coordinator>(world_->spec, term, cluster, std::move(stored));
  ++life_;
  wake_ = scheduled_ = kNever;
  world_->watch->CoordinatorStarted(term, cluster);
  Deliver(Tick{});
}

void Control::Kill() {
  LOCUM_CHECK(core_);
  core_.reset();
  ++life_;
  crash_in_ = 0;
  held_.clear();
  withheld_ = Withheld();
  store_told_ = false;
  paused_until_ = Time{};
  for (auto& [id, stream] : std::exchange(streams_, {})) stream->EndCoordinator("connection reset");
}

void Control::KillAtEffect(uint32_t effects) { crash_in_ = effects; }

void Control::Pause(Duration duration) {
  paused_until_ = world_->stage.now() + duration;
  world_->stage.After(duration, [this, life = life_, duration] {
    if (life_ != life) return;
    paused_until_ = Time{};
    // Its own gap comes first, then what has waited.
    std::vector<Event> held = std::exchange(held_, {});
    Deliver(Paused{duration});
    for (const Event& event : held) Deliver(event);
    Deliver(Tick{});
  });
}

void Control::LoseDatabase() {
  LOCUM_CHECK(!core_);
  stored_.reset();
  world_->watch->DatabaseLost();
}

void Control::KeepOldDatabase() { old_ = stored_; }

void Control::RestoreOldDatabase() {
  LOCUM_CHECK(!core_);
  if (!old_) return;
  stored_ = old_;
  world_->watch->DatabaseLost();
}

Status Control::Ask(const std::function<Event(uint64_t)>& make) {
  if (!core_) return Unavailable("no coordinator");
  const uint64_t request = ++last_request_;
  Deliver(make(request));
  const auto answer = answers_.find(request);
  return answer == answers_.end() ? Unavailable("the coordinator does not answer now") : answer->second;
}

Status Control::Failback(const std::string& node) {
  return Ask([&](uint64_t request) { return FailbackRequested{request, node}; });
}

Status Control::Adopt() {
  return Ask([](uint64_t request) { return AdoptRequested{request}; });
}

// ---- Its loop ------------------------------------------------------------------------------------------------

std::shared_ptr<Stream> Control::Accept(Machine node, const NodeHello& hello) {
  if (!core_) return nullptr;
  auto stream = std::make_shared<Stream>(&world_->network, ++last_stream_, node);
  streams_[stream->id] = stream;
  all_streams_.push_back(stream);
  stream->coordinator_closed = [this, id = stream->id](const std::string& why) {
    streams_.erase(id);
    Deliver(NodeLost{id, why});
  };
  stream->Up([this, id = stream->id, hello] { Deliver(NodeConnected{id, hello}); });
  return stream;
}

void Control::Deliver(const Event& event) {
  if (!core_ || ended_) return;
  if (paused()) {
    held_.push_back(event);
    return;
  }
  if (const auto* lost = std::get_if<NodeLost>(&event)) withheld_.Forget(lost->stream);
  ++world_->steps_taken;
  ++events_;
  Execute(core_->Step(event, world_->stage.now()));
}

bool Control::Crashes() {
  if (crash_in_ == 0 || --crash_in_ != 0) return false;
  Kill();
  return true;
}

void Control::Execute(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (!core_) return;
    const bool wake = std::holds_alternative<WakeAt>(action);
    if (!wake && (withheld_.waits() || (store_fails_ && std::holds_alternative<Persist>(action)))) {
      withheld_.Take(action, world_->stage.now());
    } else {
      Execute(action, world_->stage.now());
    }
  }
  if (core_ && withheld_.waits() && !std::exchange(store_told_, true)) {
    world_->stage.After(kTurn, [this, life = life_] {
      if (life_ == life && withheld_.waits()) Deliver(StoreChanged{"disk full", true});
    });
  }
}

// The real one tries again each second.
void Control::MendStore() {
  if (!std::exchange(store_fails_, false) || !core_ || !withheld_.waits()) return;
  world_->stage.After(kStoreRetry, [this, life = life_] {
    if (life_ != life || store_fails_ || !withheld_.waits()) return;
    if (paused()) return world_->stage.At(paused_until_, [this] { store_fails_ = true, MendStore(); });
    world_->watch->Persisted(*withheld_.state());
    stored_ = withheld_.state();
    for (const WithheldAction& a : withheld_.Release()) {
      if (core_) Execute(a.action, a.when);
    }
    if (core_ && std::exchange(store_told_, false)) Deliver(StoreChanged{"", false});
  });
}

void Control::Execute(const Action& action, Time when) {
  if (const auto* persist = std::get_if<Persist>(&action)) {
    if (Crashes()) return;
    world_->watch->Persisted(*persist->state);
    stored_ = persist->state;
  } else if (const auto* welcome = std::get_if<SendWelcome>(&action)) {
    if (const auto at = streams_.find(welcome->stream); at != streams_.end()) {
      at->second->Down([stream = at->second, w = welcome->welcome] { stream->welcomed(w); });
    }
  } else if (const auto* refuse = std::get_if<RefuseNode>(&action)) {
    if (const auto at = streams_.find(refuse->stream); at != streams_.end()) {
      const auto stream = at->second;
      stream->Down([stream, r = *refuse] { stream->refused(r.reason, r.end); });
      stream->EndCoordinator("the coordinator closed the stream");
      streams_.erase(refuse->stream);
    }
  } else if (const auto* order = std::get_if<SendOrder>(&action)) {
    if (Crashes()) return;
    world_->watch->Sent(order->order);
    if (const auto at = streams_.find(order->stream); at != streams_.end()) {
      at->second->Down([stream = at->second, o = order->order] { stream->ordered(o); });
    }
  } else if (const auto* note = std::get_if<Note>(&action)) {
    notes_.push_back({when, *note});
    world_->watch->Noted(*note, when);
  } else if (const auto* wake = std::get_if<WakeAt>(&action)) {
    Wake(wake->when);
  } else if (const auto* answer = std::get_if<Answer>(&action)) {
    answers_[answer->request] = answer->status;
  } else if (const auto* end = std::get_if<EndJob>(&action)) {
    ended_ = true;
    exit_status_ = end->exit_status;
    end_reason_ = end->reason;
    for (auto& [id, stream] : streams_) stream->EndCoordinator("the coordinator closed the stream");
    streams_.clear();
  }
}

void Control::Wake(Time when) {
  wake_ = when;
  if (when >= scheduled_) return;
  scheduled_ = when;
  world_->stage.At(when, [this, when, life = life_] {
    if (life_ != life || scheduled_ != when) return;
    scheduled_ = kNever;
    if (wake_ > world_->stage.now()) return Wake(wake_);
    wake_ = kNever;
    Deliver(Tick{});
  });
}

}  // namespace locum::sim
