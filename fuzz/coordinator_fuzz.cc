// A history of one coordinator, told by an input: what three nodes say, each message as bytes of the wire, what an
// operator asks, how time passes, when the coordinator is started anew. It begins with no node, with a job that runs,
// or with nodes that train for another coordinator. Whatever the nodes say, the coordinator decides something that it
// can send, show, and take up again.
#include "mutate.h"
#include "puppets.h"
#include "seeds.h"

using namespace locum;  // NOLINT
using namespace fuzz;   // NOLINT

namespace {

constexpr int kMaxDeeds = 200;
constexpr uint32_t kNodes = 3;

JobSpec Spec(uint8_t kind) {
  JobSpec spec;
  spec.job = "j";
  spec.command = {"train"};
  spec.nodes = 2;
  spec.spares = 1;
  spec.workers_per_node = 1 + kind % 2;
  spec.limits.recoveries = kind % 4 == 3 ? 2 : 100;
  spec.worker_to_spare = kind % 8 > 3;
  return spec;
}

class History {
 public:
  explicit History(FuzzInput* in) : in_(*in), spec_(Spec(in->Byte())) {
    for (uint32_t i = 0; i < kNodes; ++i) {
      NodeHello& hello = nodes_[i].hello;
      hello = {"node-" + std::to_string(i),
               kProtocolVersion,
               kVersion,
               "",
               Incarnation(),
               "127.0.0.1",
               Incarnation(100 + i),
               Incarnation(200 + i),
               10,
               11,
               Term(),
               spec_.workers_per_node,
               "/d"};
      nodes_[i].next = Incarnation((i + 1) << 16);
    }
    StartCoordinator();
    switch (in_.Byte() % 3) {
      case 0: break;
      case 1: Run(); break;
      case 2:  // another coordinator's job
        Run();
        stored_.reset();
        cluster_ = cluster_.Next();
        StartCoordinator();
        for (uint32_t i = 0; i < kNodes; ++i) Connect(i);
        break;
    }
  }

  void Go() {
    for (int i = 0; i < kMaxDeeds && !in_.done(); ++i) Deed();
    Check();
  }

 private:
  void StartCoordinator() {
    std::optional<PersistentState> stored;
    for (Puppet& node : nodes_) node.stream = 0;
    if (stored_) {
      // As it is on record for a replay.
      auto begun = FromWire(ToWire(spec_, stored_->term.Next(), stored_->cluster, &*stored_));
      LOCUM_CHECK(begun.ok());
      stored = begun->stored;
    }
    const Term term = stored ? stored->term.Next() : Term(1);
    over_ = stored && (stored->phase == JobPhase::kFinished || stored->phase == JobPhase::kFailed);
    if (over_) return;
    core_ = std::make_unique<Coordinator>(spec_, term, stored ? stored->cluster : cluster_, stored);
    Step(Tick{});
  }

  // Until the job trains.
  void Run() {
    trusted_ = true;
    for (uint32_t i = 0; i < kNodes; ++i) Connect(i);
    for (int i = 0; i < 8; ++i) Round();
    trusted_ = false;
    const ClusterView view = core_->View();
    LOCUM_CHECK(view.phase == JobPhase::kRunning && view.step > locum::Step(0) && view.spares == 1);
  }

  void Step(const Event& event) {
    if (over_) return;
    for (const Action& action : core_->Step(event, now_)) std::visit([&](const auto& a) { Do(a); }, action);
  }

  void Do(const Persist& a) {
    LOCUM_CHECK(CheckStored(*a.state).ok());
    stored_ = *a.state;
  }
  void Do(const SendWelcome& a) {
    auto welcome = FromWire(ToWire(a.welcome));
    LOCUM_CHECK(welcome.ok());
    if (Puppet* node = ByStream(a.stream)) {
      node->hello.job = welcome->job;
      node->hello.cluster = welcome->cluster;
      node->hello.term = welcome->term;
    }
  }
  void Do(const SendOrder& a) {
    if (!trusted_) LOCUM_CHECK(FromWire(ToWire(a.order)).ok());
    if (Puppet* node = ByStream(a.stream)) node->order = a.order;
  }
  void Do(const RefuseNode& a) {
    if (Puppet* node = ByStream(a.stream)) node->stream = 0;
  }
  void Do(const Note&) {}
  void Do(const WakeAt& a) { LOCUM_CHECK(a.when >= now_); }
  void Do(const Answer&) {}
  void Do(const EndJob&) { over_ = true; }

  Puppet* ByStream(StreamId stream) {
    for (Puppet& node : nodes_) {
      if (node.stream == stream) return &node;
    }
    return nullptr;
  }

  void Connect(uint32_t i) { Connect(i, ToWire(nodes_[i].hello)); }
  void Connect(uint32_t i, const wire::NodeHello& hello) {
    Lose(i);
    nodes_[i].stream = ++last_stream_;
    wire::FromAgent message;
    *message.mutable_hello() = hello;
    Hear(i, message.SerializeAsString(), true);
    for (const WorkerReport& worker : nodes_[i].report.workers)
      Ready(i, worker.slot, ToWire(worker.slot, worker.worker, PuppetInfo()));
  }
  void Lose(uint32_t i) {
    const StreamId stream = std::exchange(nodes_[i].stream, 0);
    if (stream != 0) Step(NodeLost{stream, "lost"});
  }
  void Ready(uint32_t i, Slot, const wire::Ready& ready) {
    wire::FromAgent message;
    *message.mutable_ready() = ready;
    Hear(i, message.SerializeAsString());
  }
  void Report(uint32_t i, const wire::NodeReport& report) {
    wire::FromAgent message;
    *message.mutable_report() = report;
    Hear(i, message.SerializeAsString());
  }

  // What an agent's stream does with a message.
  void Hear(uint32_t i, const std::string& bytes, bool first = false) {
    const StreamId stream = nodes_[i].stream;
    wire::FromAgent message;
    if (stream == 0) return;
    if (!message.ParseFromString(bytes)) return Lose(i);
    if (first != message.has_hello()) return Lose(i);
    if (message.has_hello()) {
      auto hello = FromWire(message.hello());
      return hello.ok() ? Step(NodeConnected{stream, *hello}) : Lose(i);
    }
    if (message.has_ready()) {
      auto ready = FromWire(message.ready());
      return ready.ok() ? Step(WorkerReady{stream, ready->slot, ready->worker, ready->info}) : Lose(i);
    }
    if (!message.has_report()) return Lose(i);
    auto report = FromWire(message.report());
    return report.ok() ? Step(NodeReported{stream, *report}) : Lose(i);
  }

  void Turn(uint32_t i) {
    Puppet& node = nodes_[i];
    if (node.stream == 0) return;
    const bool started = Obey(&node);
    const std::vector<WorkerReport> workers = node.report.workers;
    Step(NodeReported{node.stream, node.report});  // which the wire would not change
    for (const WorkerReport& worker : workers) {
      if (started && node.stream != 0) Step(WorkerReady{node.stream, worker.slot, worker.worker, PuppetInfo()});
    }
  }
  void Round() {
    now_ = now_ + std::chrono::milliseconds(10);
    for (uint32_t i = 0; i < kNodes; ++i) Turn(i);
  }
  void Pass(Duration d) {
    now_ = now_ + d;
    Step(Tick{});
  }

  // Something that the node might not say.
  void Misreport(uint32_t i) {
    wire::NodeReport report = ToWire(nodes_[i].report);
    for (int n = in_.Byte() % 4; n >= 0; --n) FuzzMutate(&report, in_);
    // It stays so.
    if (auto taken = FromWire(report); taken.ok() && report.workers_size() < 16) nodes_[i].report = *taken;
    Report(i, report);
  }
  void Misconnect(uint32_t i) {
    wire::NodeHello hello = ToWire(nodes_[i].hello);
    for (int n = in_.Byte() % 3; n >= 0; --n) FuzzMutate(&hello, in_);
    Connect(i, hello);
  }
  void Misready(uint32_t i) {
    const Slot slot(static_cast<uint32_t>(in_.Below(3)));
    const WorkerReport* worker = nodes_[i].At(slot);
    wire::Ready ready = ToWire(slot, worker ? worker->worker : Incarnation(1), PuppetInfo());
    for (int n = in_.Byte() % 3; n >= 0; --n) FuzzMutate(&ready, in_);
    Ready(i, slot, ready);
  }

  void Deed() {
    const uint8_t deed = in_.Byte();
    const uint32_t i = deed / 32 % kNodes;
    switch (deed % 32) {
      default: return Misreport(i);
      case 0: return Pass(std::chrono::milliseconds(in_.Byte() * 4));
      case 1:
      case 2:
      case 3:
      case 4: return Round();
      case 5:
      case 6: return Turn(i);
      case 7: return Lose(i);
      case 8: return Connect(i);
      case 9:  // started again
        nodes_[i].hello.keeper = nodes_[i].hello.keeper.Next();
        nodes_[i].report = {};
        return Connect(i);
      case 10: return Misconnect(i);
      case 11: return Misready(i);
      case 12: return Hear(i, in_.Bytes(256));
      case 13: return Step(FailbackRequested{1, nodes_[i].hello.name});
      case 14: return Step(AdoptRequested{2});
      case 15: return Step(StoreChanged{in_.Bool() ? "full" : "", in_.Bool()});
      case 16: return Step(Paused{std::chrono::milliseconds(in_.Byte())});
      case 17: return StartCoordinator();
      case 18: return Step(StopRequested{"SIGTERM"});
      case 19: return Pass(std::chrono::seconds(in_.Byte()));
      case 20:
        for (WorkerReport& worker : nodes_[i].report.workers) EndWorker(&worker, in_.Byte(), in_.Byte() % 32, false);
        return Turn(i);
      case 21:
        for (int n = 0; n < 8; ++n) Round();
        return;
      case 22: return Check();
      case 23:
        for (WorkerReport& worker : nodes_[i].report.workers) worker.state.broken = worker.state.word.generation;
        return Turn(i);
      case 24:
        for (WorkerReport& worker : nodes_[i].report.workers) worker.state.done = true;
        return Turn(i);
    }
  }

  void Check() {
    if (core_) LOCUM_CHECK(FromWire(ToWire(core_->View())).ok());
  }

  FuzzInput& in_;
  const JobSpec spec_;
  Incarnation cluster_{77};
  std::unique_ptr<Coordinator> core_;
  std::optional<PersistentState> stored_;
  bool over_ = false;
  bool trusted_ = false;  // what is said and done now needs no wire
  StreamId last_stream_ = 0;
  Time now_{1'000'000'000};
  Puppet nodes_[kNodes];
};

}  // namespace

int FuzzMixtures() { return 3'000; }

std::vector<std::string> FuzzSeeds() {
  const std::string round = "\x01", kill("\x14\x01\x09", 3), later = "\x13\x05", back("\x0d", 1);
  std::vector<std::string> seeds;
  for (char kind = 0; kind < 8; ++kind) {
    for (char start = 0; start < 3; ++start) {
      std::string begin{kind, start};
      seeds.push_back(begin + round + kill + "\x15" + later + "\x15" + back + "\x15");
      seeds.push_back(begin + "\x07" + "\x15" + later + "\x08\x15" + "\x11\x08\x28\x48\x15");
      seeds.push_back(begin + "\x0e\x15\x15" + std::string("\x1f\x00\x02\x01\x05\xff", 6) + "\x15");
    }
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(FuzzText(data, size));
  History(&in).Go();
  return 0;
}
