#include "sim/cluster.h"

#include <algorithm>

namespace locum::sim {

Cluster::Cluster(JobSpec spec, Options options) : spec_(std::move(spec)), options_(options), random_(options.seed) {
  values_.push_back(Mix64(spec_.seed + 1));
  StartCoordinator();
  for (uint32_t i = 0; i < spec_.nodes + spec_.spares; ++i) {
    const std::string name = "node-" + std::to_string(i);
    nodes_[name].name = name;
    StartNode(name);
  }
}

Cluster::~Cluster() = default;

void Cluster::After(Duration delay, std::function<void()> what) {
  queue_.push({now_ + delay, ++scheduled_, std::move(what)});
}

Duration Cluster::Delay(Duration mean) {
  if (!options_.jitter) return mean;
  // Mostly near the mean, now and then ten times as long.
  const uint64_t half = static_cast<uint64_t>(mean.count()) / 2 + 1;
  const Duration d(static_cast<int64_t>(half + random_.Below(2 * half)));
  return random_.OneIn(50) ? 10 * d : d;
}

void Cluster::RunFor(Duration duration) {
  const Time end = now_ + duration;
  RunUntil([] { return false; }, duration);
  now_ = std::max(now_, end);
}

bool Cluster::RunUntil(const std::function<bool()>& done, Duration limit) {
  const Time end = now_ + limit;
  while (!done()) {
    if (queue_.empty() || queue_.top().when > end) return false;
    Scheduled next = queue_.top();
    queue_.pop();
    now_ = next.when;
    next.what();
  }
  return true;
}

std::vector<std::string> Cluster::NodeNames() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) names.push_back(name);
  return names;
}

bool Cluster::StateLost() const {
  if (fully_committed_ == 0 && newest_running_ == Generation(0)) return false;
  return std::none_of(all_workers_.begin(), all_workers_.end(), [&](const auto& w) {
    return w->alive && w->state.word.generation == newest_running_ && w->state.word.state != WordState::kTorn &&
           w->asleep_since == kNever;
  });
}

uint32_t Cluster::StateHolders() const {
  std::set<std::string> holders;
  for (const auto& w : all_workers_) {
    const bool holds = w->alive && w->rank != kNoRank && w->state.word.generation == newest_running_ &&
                       w->state.word.state != WordState::kTorn && w->asleep_since == kNever && !w->deaf;
    if (holds && w->node->up && !w->node->Unreached()) holders.insert(w->node->name);
  }
  return static_cast<uint32_t>(holders.size());
}

std::string Cluster::Describe() const {
  std::string text;
  for (const auto& [name, node] : nodes_) {
    text += "  " + name + (node.up ? " up" : " down") + (node.cut ? " cut" : "") + (node.agent ? "" : " no agent") +
            " stream " + std::to_string(node.stream) + (node.welcomed ? " welcomed" : "") + "\n";
    for (const auto& [slot, w] : node.workers) {
      const Word& word = w->state.word;
      text += "    slot " + std::to_string(slot.value) + " " + ToHex(w->id.value) + (w->alive ? "" : " dead") +
              (w->ready ? "" : " starting") + " g=" + std::to_string(word.generation.value) +
              " s=" + std::to_string(word.step.value) + " " + WordStateName(word.state) + " position " +
              std::to_string(static_cast<int>(w->state.position)) + " mode " +
              std::to_string(static_cast<int>(w->order.mode)) + " broken=" + std::to_string(w->state.broken.value) +
              " frozen=" + std::to_string(w->state.frozen.value) +
              " verified=" + std::to_string(w->state.verified.generation.value) +
              " of g=" + std::to_string(w->order.generation.value) + "\n";
    }
  }
  return text;
}

void Cluster::Violation(const std::string& what) {
  violations_.push_back("at " + std::to_string(now_.ns / 1000) + " us: " + what);
}

// ---- The coordinator ----------------------------------------------------------------------------------------

void Cluster::StartCoordinator() {
  LOCUM_CHECK(!core_);
  store_fails_ = false;  // else it would not start
  term_ = stored_ ? stored_->term.Next() : Term(1);
  std::optional<PersistentState> stored;
  if (stored_) stored = *stored_;
  const Incarnation cluster = stored ? stored->cluster : Incarnation(random_.Next());
  core_ = std::make_unique<Coordinator>(spec_, term_, cluster, stored);
  ++core_epoch_;
  wake_ = kNever;
  Deliver(Tick{});
}

void Cluster::KillCoordinator() {
  LOCUM_CHECK(core_);
  core_.reset();
  ++core_epoch_;
  held_.clear();
  withheld_ = Withheld();
  store_told_ = false;
  paused_until_ = Time{};
  for (auto& [name, node] : nodes_) DropStream(node, false);
}

void Cluster::PauseCoordinator(Duration duration) {
  paused_until_ = now_ + duration;
  After(duration, [this, epoch = core_epoch_, duration] {
    if (epoch != core_epoch_) return;
    // Inputs are drained first, and deadlines restart: the pause was the coordinator's own.
    std::vector<Event> held;
    held.swap(held_);
    paused_until_ = Time{};
    Deliver(Paused{duration});
    for (const Event& event : held) Deliver(event);
  });
}

Status Cluster::Ask(const std::function<Event(uint64_t)>& make) {
  if (!core_) return Unavailable("no coordinator");
  const uint64_t request = ++next_request_;
  Deliver(make(request));
  return answers_.count(request) ? answers_[request] : Unavailable("the coordinator does not answer now");
}

Status Cluster::Failback(const std::string& name) {
  return Ask([&](uint64_t request) { return FailbackRequested{request, name}; });
}

Status Cluster::Adopt() {
  return Ask([](uint64_t request) { return AdoptRequested{request}; });
}

void Cluster::LoseDatabase() {
  LOCUM_CHECK(!core_);
  stored_.reset();
}

void Cluster::Deliver(const Event& event) {
  if (!core_ || ended_) return;
  if (now_ < paused_until_) {
    held_.push_back(event);
    return;
  }
  if (const auto* lost = std::get_if<NodeLost>(&event)) withheld_.Forget(lost->stream);
  Execute(core_->Step(event, now_));
  if (withheld_.waits() && !store_told_) {
    store_told_ = true;
    Deliver(StoreChanged{"disk full", true});
  }
}

void Cluster::FailStore() { store_fails_ = true; }

void Cluster::MendStore() {
  if (now_ < paused_until_) return After(paused_until_ - now_, [this] { MendStore(); });
  store_fails_ = false;
  if (!core_ || !withheld_.waits()) return;
  stored_ = withheld_.state();
  for (const WithheldAction& a : withheld_.Release()) Execute(a.action);
  if (std::exchange(store_told_, false)) Deliver(StoreChanged{"", false});
}

void Cluster::Execute(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    const bool wake = std::holds_alternative<WakeAt>(action);
    if (!wake && (withheld_.waits() || (store_fails_ && std::holds_alternative<Persist>(action)))) {
      withheld_.Take(action, now_);
    } else {
      Execute(action);
    }
  }
}

void Cluster::Execute(const Action& action) {
  if (const auto* a = std::get_if<Persist>(&action)) {
    stored_ = a->state;
  } else if (const auto* welcome = std::get_if<SendWelcome>(&action)) {
    SimNode& node = nodes_.at(streams_.at(welcome->stream));
    After(kStreamHop, [this, &node, w = *welcome] {
      if (node.stream != w.stream || node.cut) return;
      const Incarnation ours = TrainsFor(node);
      if (ours != Incarnation() && ours != w.welcome.cluster && ours != w.welcome.adopts) {
        return DropStream(node, true);  // it introduces itself anew
      }
      node.welcomed = true;
      node.cluster = w.welcome.cluster;
      node.term = w.welcome.term;
      node.job = w.welcome.job;
      SendReport(node);
    });
  } else if (const auto* refuse = std::get_if<RefuseNode>(&action)) {
    SimNode& node = nodes_.at(streams_.at(refuse->stream));
    if (node.stream == refuse->stream) node.stream = 0;
  } else if (const auto* order = std::get_if<SendOrder>(&action)) {
    SimNode& node = nodes_.at(streams_.at(order->stream));
    After(kStreamHop, [this, &node, o = *order] {
      if (node.stream == o.stream && !node.cut && node.agent) TakeOrder(node, o.order);
    });
  } else if (const auto* note = std::get_if<Note>(&action)) {
    notes_.push_back({now_, *note});
  } else if (const auto* wake = std::get_if<WakeAt>(&action)) {
    if (wake->when < wake_) {
      wake_ = wake->when;
      After(std::max(Duration(0), wake->when - now_), [this, when = wake->when, epoch = core_epoch_] {
        if (epoch != core_epoch_ || wake_ != when) return;
        wake_ = kNever;
        Deliver(Tick{});
      });
    }
  } else if (const auto* answer = std::get_if<Answer>(&action)) {
    answers_[answer->request] = answer->status;
  } else if (const auto* end = std::get_if<EndJob>(&action)) {
    ended_ = true;
    exit_status_ = end->exit_status;
  }
}

std::shared_ptr<Cluster::Worker> Cluster::Find(Incarnation id) {
  for (const auto& worker : all_workers_) {
    if (worker->id == id) return worker;
  }
  return nullptr;
}

uint64_t Cluster::ValueOf(uint64_t step) {
  while (values_.size() <= step) values_.push_back(Mix64(values_.back() + values_.size()));
  return values_[step];
}

}  // namespace locum::sim
