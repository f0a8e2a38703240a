// A history of one node, told by an input: agent and keeper decide, between a coordinator, workers and the kernel that
// say anything. Each message passes through its bytes: ToAgent of the wire, the packets of the worker's socket and of
// the keeper's. Whatever is said, what agent and keeper tell each other, their workers and the coordinator is something
// that the other side takes.
#include "adapters/grpc/convert.h"
#include "mutate.h"
#include "node/keeper_core.h"
#include "node/node_core.h"
#include "ports/keeper_protocol.h"
#include "puppets.h"
#include "runtime/notes_codec.h"
#include "seeds.h"

using namespace locum;  // NOLINT

namespace {

constexpr int kMaxDeeds = 200;

class History {
 public:
  explicit History(FuzzInput* in) : in_(*in) {
    welcome_.set_term(3);
    welcome_.set_job("j");
    welcome_.set_cluster(9);
    welcome_.add_command("train");
    welcome_.set_workers_per_node(2);
    for (auto set :
         {&wire::Welcome::set_grace_ns, &wire::Welcome::set_heartbeat_ns, &wire::Welcome::set_park_deadline_ns,
          &wire::Welcome::set_collective_deadline_ns, &wire::Welcome::set_freeze_deadline_ns}) {
      (welcome_.*set)(1'000'000'000);
    }
    order_.set_term(3);
    Keep(keep::Begin{});
    Settle();
    if (in_.Bool()) Run();
  }

  void Go() {
    for (int i = 0; i < kMaxDeeds && !in_.done(); ++i) Deed();
  }

 private:
  struct Process {
    Slot slot;
    WorkerState state;
  };

  // Both workers of the node run in generation 1.
  void Run() {
    Settle();
    Hear(welcome_);
    for (const wire::Mode mode : {wire::MODE_IDLE, wire::MODE_FREEZE, wire::MODE_RECOVER, wire::MODE_RUN}) {
      Order(mode, mode == wire::MODE_IDLE ? 0 : 1);
      for (uint32_t slot = 0; slot < 2; ++slot) {
        if (mode == wire::MODE_IDLE) Join(slot);
        Obey(slot);
      }
    }
    LOCUM_CHECK(told_.size() == 2 && told_.begin()->second.mode == Mode::kRun);
  }

  // ---- the agent ---------------------------------------------------------------------------------------------
  void Agent(const node::Event& event) {
    if (!agent_) return;
    for (const node::Action& action : agent_->Step(event, now_)) std::visit([&](const auto& a) { Do(a); }, action);
  }
  void Do(const node::Introduce& a) { LOCUM_CHECK(FromWire(ToWire(a.hello)).ok()); }
  void Do(const node::IntroduceAnew&) {}
  void Do(const node::SendReady& a) { LOCUM_CHECK(FromWire(ToWire(a.slot, a.worker, a.info)).ok()); }
  void Do(const node::SendReport& a) { LOCUM_CHECK(FromWire(ToWire(a.report)).ok()); }
  void Do(const node::StartWorker& a) {
    StartWorker start{
        a.slot, a.worker, a.command,
        a.log,  a.grace,  {a.job, "n", a.slot, a.worker, "token", "::1", a.step_log, a.seed, a.workers_per_node}};
    const std::string packet = EncodeStart(start);
    if (packet.size() > kMaxKeeperMessage) {  // which its host finds, too
      WorkerRecord failed{a.slot, a.worker};
      failed.ended = true;
      return later_.push_back(node::WorkerSeen{failed});
    }
    auto taken = DecodeStart(packet);
    LOCUM_CHECK(taken.ok());
    newest_[taken->slot.value] = taken->worker;
    processes_[taken->worker] = {taken->slot};
    Keep(keep::StartAsked{taken->slot, taken->worker, taken->grace, taken->log, taken->welcome.step_log});
  }
  void Do(const node::EndWorker& a) {
    auto stop = DecodeStop(EncodeStop(a.stop));
    LOCUM_CHECK(stop.ok());
    Keep(*stop);
  }
  void Do(const node::Forget& a) { Keep(ForgetWorker{a.worker}); }
  void Do(const node::EndNode& a) {
    auto shutdown = DecodeShutdown(EncodeShutdown(a.shutdown));
    LOCUM_CHECK(shutdown.ok());
    Keep(*shutdown);
  }
  void Do(const node::Relay& a) {
    if (!a.measure.empty()) later_.push_back(node::LogMeasured{a.worker, in_.Number()});
    auto order = DecodeOrder(EncodeOrder(a.order));
    LOCUM_CHECK(order.ok());
    told_[a.worker] = *order;
  }
  void Do(const node::Abort& a) { LOCUM_CHECK(DecodeAbort(EncodeAbort(a.generation)).ok()); }
  void Do(const node::SaveStacks& a) { later_.push_back(node::StacksSaved{a.worker}); }
  void Do(const node::AskAgain&) {}
  void Do(const node::StoreStop& a) {
    PageReading page;
    page.worker = a.worker;
    page.stop_at = a.stop_at;
    later_.push_back(node::StopStored{page});
  }
  void Do(const node::Draw& a) {
    node::Drawn drawn;
    for (uint32_t i = 0; i < a.count; ++i) drawn.fresh.push_back(Incarnation(++random_));
    later_.push_back(drawn);
  }
  void Do(const node::Remember& a) {
    auto notes = DecodeRemember(EncodeRemember(EncodeNotes(a.notes)));
    LOCUM_CHECK(notes.ok());
    Keep(RememberNotes{*notes});
  }
  void Do(const node::Note&) {}
  void Do(const node::WakeAt&) {}

  // ---- the keeper --------------------------------------------------------------------------------------------
  void Keep(const keep::Event& event) {
    if (over_) return;
    for (const keep::Action& action : keeper_.Step(event, now_)) std::visit([&](const auto& a) { Do(a); }, action);
  }
  void Do(const keep::StartAgent&) {
    agent_.emplace(node::Identity{"node-a", "::1", "/d", Incarnation(++random_), 43});
  }
  void Do(const keep::LeaveAgent&) { later_keeper_.push_back(AgentEnded{}); }
  void Do(const keep::KillAgent&) { later_keeper_.push_back(AgentEnded{}); }
  void Do(const keep::TellHello& a) {
    auto hello = DecodeKeeperHello(EncodeKeeperHello(a.hello));
    LOCUM_CHECK(hello.ok());
    auto notes = DecodeNotes(hello->notes);
    LOCUM_CHECK(notes.ok());
    later_.push_back(node::KeeperThere{*hello, *notes});
  }
  void Do(const keep::TellWorker& a) {
    auto record = DecodeWorker(EncodeWorker(a.record));
    LOCUM_CHECK(record.ok());
    later_.push_back(node::WorkerSeen{*record});
  }
  void Do(const keep::LaunchWorker& a) { later_keeper_.push_back(WorkerStarted{a.worker, 500}); }
  void Do(const keep::TermWorker&) {}
  void Do(const keep::KillWorker& a) {
    WorkerEnded ended{a.worker};
    ended.started = ProcessEnd{0, 9};
    if (!stuck_) later_keeper_.push_back(ended);
  }
  void Do(const keep::KillReaper&) {}
  void Do(const keep::Admit&) {}
  void Do(const keep::CloseDoor&) {}
  void Do(const keep::RefuseJoin& a) { LOCUM_CHECK(DecodeRefused(EncodeRefused(a.text)).ok()); }
  void Do(const keep::DropWorker& a) {
    told_.erase(a.worker);
    processes_.erase(a.worker);
  }
  void Do(const keep::WakeAt&) {}
  void Do(const keep::EndKeeper&) { over_ = true; }
  void Do(const keep::Note&) {}

  // What the two have caused.
  void Settle() {
    for (int i = 0; i < 1000 && !(later_.empty() && later_keeper_.empty()); ++i) {
      for (const keep::Event& event : std::exchange(later_keeper_, {})) Keep(event);
      for (const node::Event& event : std::exchange(later_, {})) Agent(event);
    }
  }

  // ---- the coordinator ---------------------------------------------------------------------------------------
  void Hear(const wire::Welcome& welcome) {
    wire::ToAgent message;
    *message.mutable_welcome() = welcome;
    Hear(message.SerializeAsString());
  }
  void Hear(const wire::NodeOrder& order) {
    wire::ToAgent message;
    *message.mutable_order() = order;
    Hear(message.SerializeAsString());
  }
  // What the agent's link does with a message.
  void Hear(const std::string& bytes) {
    wire::ToAgent message;
    bool good = message.ParseFromString(bytes);
    if (good && message.has_welcome()) {
      auto welcome = FromWire(message.welcome());
      if ((good = welcome.ok())) Agent(node::CoordinatorUp{*welcome});
    } else if (good && message.has_order()) {
      auto order = FromWire(message.order());
      if ((good = order.ok())) Agent(node::Ordered{*order});
    } else if (good && message.has_refused()) {
      Agent(node::CoordinatorRefused{Clean(message.refused().reason()), message.refused().end()});
    }
    if (!good) Agent(node::CoordinatorLost{"bad message"});
    Settle();
  }
  void Order(wire::Mode mode, uint64_t generation) {
    order_.set_sequence(order_.sequence() + 1);
    order_.clear_workers();
    for (uint32_t slot = 0; slot < 2; ++slot) {
      wire::WorkerOrder* o = order_.add_workers();
      o->set_slot(slot);
      o->set_run(true);
      o->set_worker(In(slot).value);
      o->set_mode(mode);
      o->set_generation(generation);
      o->set_rank(slot);
      o->set_world(2);
      o->set_stop_at(kMaxStep);
      for (uint32_t rank = 0; rank < 2 && mode == wire::MODE_RUN; ++rank) o->add_peers()->set_rank(rank);
    }
    Hear(order_);
  }

  // ---- a worker ----------------------------------------------------------------------------------------------
  Incarnation In(uint32_t slot) const {
    const auto at = newest_.find(slot);
    return at == newest_.end() ? Incarnation() : at->second;
  }
  void Join(uint32_t slot) {
    Keep(JoinAsked{1, 600, kProtocolVersion, In(slot), kVersion});
    Settle();
    Say(In(slot), EncodeReady(fuzz::PuppetInfo()));
  }
  void Obey(uint32_t slot) {
    const Incarnation worker = In(slot);
    const auto order = told_.find(worker);
    if (order == told_.end()) return;
    WorkerReport report;
    report.worker = worker;
    report.state = processes_[worker].state;
    fuzz::Obey(&report, order->second);
    processes_[worker].state = report.state;
    Show(worker, report.state);
    Say(worker, EncodeState(report.state));
  }
  // What a page shows, however it was written.
  void Show(Incarnation worker, const WorkerState& s) {
    node::PagesRead read;
    read.pages.push_back({worker, s.word, s.position, s.stop_at, s.starting, s.has_loss, s.loss});
    Agent(read);
    Settle();
  }
  // What the agent's host does with a packet.
  void Say(Incarnation worker, const std::string& packet) {
    auto type = TypeOf(packet);
    bool good = type.ok();
    if (good && *type == WorkerMessage::kReady) {
      auto info = DecodeReady(packet);
      if ((good = info.ok())) Agent(node::WorkerIsReady{worker, *info});
    } else if (good && *type == WorkerMessage::kState) {
      auto state = DecodeState(packet);
      if ((good = state.ok())) Agent(node::WorkerSaid{worker, *state});
    } else {
      good = false;
    }
    if (!good) Agent(node::WorkerLeft{worker, "nonsense"});
    Settle();
  }
  void Missay(uint32_t slot) {
    const Incarnation worker = In(slot);
    WorkerReport report;
    report.state = processes_[worker].state;
    wire::NodeReport wired = ToWire(NodeReport{Term(), 0, {report}});
    for (int n = in_.Byte() % 4; n >= 0; --n) FuzzMutate(wired.mutable_workers(0)->mutable_state(), in_);
    auto taken = FromWire(wired);
    if (!taken.ok()) return;
    processes_[worker].state = taken->workers[0].state;
    if (in_.Bool()) Show(worker, taken->workers[0].state);
    Say(worker, EncodeState(taken->workers[0].state));
  }

  // ---- the two of them ---------------------------------------------------------------------------------------
  void ToKeeper(const std::string& packet) {
    if (auto start = DecodeStart(packet); start.ok())
      Keep(keep::StartAsked{start->slot, start->worker, start->grace, start->log, start->welcome.step_log});
    if (auto stop = DecodeStop(packet); stop.ok()) Keep(*stop);
    if (auto worker = DecodeForget(packet); worker.ok()) Keep(ForgetWorker{*worker});
    if (auto shutdown = DecodeShutdown(packet); shutdown.ok()) Keep(*shutdown);
    if (auto notes = DecodeRemember(packet); notes.ok()) Keep(RememberNotes{*notes});
    Settle();
  }
  void ToAgent(const std::string& packet) {
    if (auto hello = DecodeKeeperHello(packet); hello.ok()) {
      auto notes = DecodeNotes(hello->notes);
      Agent(node::KeeperThere{*hello, notes.ok() ? *notes : node::Notes()});
    }
    if (auto record = DecodeWorker(packet); record.ok()) Agent(node::WorkerSeen{*record});
    Settle();
  }
  void Pass(Duration d) {
    now_ = now_ + d;
    Keep(keep::Tick{});
    Agent(node::Tick{});
    Settle();
  }
  void Ends(Incarnation worker) {
    WorkerEnded ended{worker};
    ended.started = ProcessEnd{in_.Byte(), in_.Byte() % 65};
    ended.log_tail = in_.Bytes(64);
    Keep(ended);
    Settle();
  }

  void Deed() {
    const uint8_t deed = in_.Byte();
    const uint32_t slot = deed >> 7;
    switch (deed % 24) {
      default: {
        wire::NodeOrder order = order_;
        order.set_sequence(order_.sequence() + 1);
        for (int n = in_.Byte() % 4; n >= 0; --n) FuzzMutate(&order, in_);
        if (FromWire(order).ok() && order.workers_size() < 16) order_ = order;
        return Hear(order);
      }
      case 0: return Pass(std::chrono::milliseconds(in_.Byte() * 4));
      case 1: return Pass(std::chrono::seconds(in_.Byte()));
      case 2: return Order(static_cast<wire::Mode>(in_.Byte() % 5), in_.Byte() % 8);
      case 3: return Obey(slot);
      case 4: return Join(slot);
      case 5:
      case 6: return Missay(slot);
      case 7: return Say(In(slot), in_.Bytes(256));
      case 8: {
        wire::Welcome welcome = welcome_;
        for (int n = in_.Byte() % 4; n >= 0; --n) FuzzMutate(&welcome, in_);
        return Hear(welcome);
      }
      case 9: return Hear(in_.Bytes(256));
      case 10: return Agent(node::CoordinatorLost{"lost"});
      case 11: return Hear(welcome_);
      case 12: return Ends(In(slot));
      case 13: Keep(JoinedEnded{In(slot), in_.Bool()}); return Settle();
      case 14:
        agent_.reset();
        Keep(AgentEnded{{in_.Byte(), in_.Byte() % 65}, ""});
        return Settle();
      case 15: return ToKeeper(in_.Bytes(256));
      case 16: return ToAgent(in_.Bytes(256));
      case 17: Keep(EndAsked{in_.Byte() % 32}); return Settle();
      case 18: stuck_ = !stuck_; return;
      case 19:
        Keep(JoinAsked{2, 601, static_cast<uint32_t>(in_.Byte() % 4), Incarnation(in_.Number()), in_.Bytes(16)});
        return Settle();
    }
  }

  FuzzInput& in_;
  Time now_{1'000'000'000};
  wire::Welcome welcome_;
  wire::NodeOrder order_;
  keep::KeeperCore keeper_{Incarnation(7), 42};
  std::optional<node::NodeCore> agent_;
  std::vector<node::Event> later_;
  std::vector<keep::Event> later_keeper_;
  std::map<Incarnation, WorkerOrder> told_;
  std::map<Incarnation, Process> processes_;
  std::map<uint32_t, Incarnation> newest_;
  uint64_t random_ = 1000;
  bool over_ = false, stuck_ = false;
};

}  // namespace

int FuzzMixtures() { return 5'000; }

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const char start : {'\0', '\1'}) {
    const std::string begin(1, start);
    seeds.push_back(begin + std::string("\x02\x01\x02\x03\x83\x00\xff\x02\x02\x02\x03\x83\x02\x03\x02\x03\x83", 16));
    seeds.push_back(begin + std::string("\x0c\x01\x00\x02\x00\x00\x00\x04\x84\x0e\x00\x09\x00\x05\x0b\x00\x20", 17));
    seeds.push_back(
        begin + std::string("\x14\x02\x05\x05\x05\x01\x00\x01\x05\x01\x00\x05\x08\x00\x03\xff\x11\x0f\x01\x05", 20));
  }
  for (const std::string& packet :
       {EncodeStop({Incarnation(1001), Duration(1)}), EncodeShutdown({Duration(1), 1, "w"})}) {
    seeds.push_back(std::string("\x01\x0f", 2) + static_cast<char>(packet.size()) + std::string(1, '\0') + packet);
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(FuzzText(data, size));
  History(&in).Go();
  return 0;
}
