#include "adapters/grpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace locum {
namespace {

using ::testing::HasSubstr;

// Values anywhere in their ranges, the ends more often than by chance.
class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  uint64_t Any() { return random_.OneIn(4) ? 0 : random_.OneIn(4) ? UINT64_MAX : random_.Next(); }
  uint64_t Upto(uint64_t most) { return random_.OneIn(4) ? 0 : random_.OneIn(4) ? most : random_.Below(most + 1); }
  bool Bool() { return random_.OneIn(2); }
  Term AnyTerm() { return Term(Upto(kMaxTerm)); }
  Duration Wait() { return Duration(static_cast<int64_t>(Upto(static_cast<uint64_t>(kMaxTimeout.count())))); }
  int64_t Ns() { return static_cast<int64_t>(Upto(INT64_MAX)); }
  int32_t Pid() { return static_cast<int32_t>(Upto(INT32_MAX)); }
  Generation Gen() { return Generation(Upto(kMaxGeneration)); }
  Step AnyStep() { return Step(Upto(kMaxStep)); }
  Rank AnyRank() { return random_.OneIn(4) ? kNoRank : Rank(static_cast<uint32_t>(Upto(kMaxPeers - 1))); }
  Slot AnySlot() { return Slot(static_cast<uint32_t>(Upto(kMaxWorkersPerNode - 1))); }
  Incarnation Inc() { return Incarnation(Any()); }
  Incarnation LiveInc() { return Incarnation(1 + Upto(UINT64_MAX - 1)); }
  std::string Text() { return random_.OneIn(4) ? "" : std::string(Upto(20), 'a') + "\xc3\xa9 \"x\""; }
  std::string Path() { return "/\xff\xfe " + Text(); }
  std::string Name() { return "node-" + std::to_string(random_.Below(1000)); }
  template <class E>
  E Enum(E last) {
    return static_cast<E>(random_.Below(static_cast<uint64_t>(last) + 1));
  }

  JoinInfo Join() {
    JoinInfo info{static_cast<uint32_t>(Any()), Text(), Text(), {}, Any(), Upto(kMaxStep), Text()};
    for (uint64_t i = Upto(3); i > 0; --i) info.shards.push_back({Text(), Any(), Text()});
    return info;
  }
  WorkerState State() {
    WorkerState s;
    s.word = Word{Gen(), AnyStep(), Enum(WordState::kTorn)};
    s.position = Enum(Position::kParked);
    s.starting = AnyStep();
    s.stop_at = AnyStep();
    s.rank = AnyRank();
    s.frozen = Gen();
    s.holding = {Bool(), Gen(), AnyStep()};
    s.parked = Gen();
    s.verified = {Gen(), AnyStep(), Any(), Any(), Ns(), Ns(), static_cast<uint32_t>(Any()), Inc()};
    s.cannot_pull = Gen();
    s.pull_error = Text();
    s.connected = Gen();
    s.connected_ns = Ns();
    s.first_commit = Gen();
    s.first_commit_ns = Ns();
    s.broken = Gen();
    s.broken_step = AnyStep();
    s.broken_why = Text();
    s.done = Bool();
    s.loss = Bool() ? 1.5 : HUGE_VAL;
    s.has_loss = Bool();
    s.echo = {Any(), Bool(), Any(), Ns(), Text()};
    s.error = Text();
    return s;
  }
  WorkerReport Worker() {
    WorkerReport r{AnySlot(), Inc(), Pid(), Enum(WorkerLife::kExited), {}, State(), Path(), Any(), Path()};
    r.joined = Bool();
    r.stuck = Bool();
    r.waits = Bool();
    r.mute = Bool();
    if (Bool()) {
      r.exit = WorkerExit{static_cast<int32_t>(Upto(kMaxExitStatus)), static_cast<int32_t>(Upto(kMaxSignal)), Bool(),
                          Text(), Text()};
    }
    return r;
  }
  Usage AnyUsage() {
    return {Ns(), static_cast<uint32_t>(Upto(1000)), Any(), Any(), Any(), Any(), Any(), Any(), Any(), Any()};
  }
  NodeHello Hello() {
    return {Name(),    static_cast<uint32_t>(Any()),
            Text(),    Text(),
            Inc(),     Text(),
            LiveInc(), LiveInc(),
            Pid(),     Pid(),
            AnyTerm(), static_cast<uint32_t>(Upto(kMaxWorkersPerNode)),
            Path()};
  }
  NodeReport Report() {
    NodeReport r{AnyTerm(), Any(), {}, AnyUsage()};
    for (uint64_t i = Upto(3); i > 0; --i) r.workers.push_back(Worker());
    r.leaving = Bool();
    return r;
  }
  Peer AnyPeer() { return {AnyRank(), Inc(), Text()}; }
  WorkerOrder Order() {
    WorkerOrder o;
    o.slot = AnySlot();
    o.worker = Inc();
    o.retire = Inc();
    o.run = Bool();
    o.refuse = Text();
    o.mode = Enum(Mode::kFinish);
    o.generation = Gen();
    o.rank = AnyRank();
    o.world = static_cast<uint32_t>(Upto(kMaxPeers));
    o.recovery_step = AnyStep();
    o.pull = Bool();
    o.staged = Bool();
    for (uint64_t i = Upto(3); i > 0; --i) o.sources.push_back(AnyPeer());
    for (uint64_t i = Upto(3); i > 0; --i) o.peers.push_back(AnyPeer());
    o.stop_at = AnyStep();
    o.echo_nonce = Any();
    o.hung = Bool();
    o.expendable = Bool();
    if (Bool()) o.echo_peer = AnyPeer();
    return o;
  }

 private:
  Random random_;
};

constexpr uint64_t kRounds = 300;

TEST(Convert, Hello_ComesBack) {
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    NodeHello in = Maker(seed).Hello();
    auto out = FromWire(ToWire(in));
    ASSERT_TRUE(out.ok()) << seed << ": " << out.status().message();
    EXPECT_EQ(std::tie(in.name, in.protocol, in.version, in.job, in.address, in.keeper, in.agent, in.keeper_pid,
                       in.agent_pid, in.term, in.slots, in.dir, in.cluster),
              std::tie(out->name, out->protocol, out->version, out->job, out->address, out->keeper, out->agent,
                       out->keeper_pid, out->agent_pid, out->term, out->slots, out->dir, out->cluster))
        << seed;
  }
}

TEST(Convert, ReportThroughBytes_ComesBack) {
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    NodeReport in = Maker(seed).Report();
    wire::NodeReport parsed;
    ASSERT_TRUE(parsed.ParseFromString(ToWire(in).SerializeAsString()));
    auto out = FromWire(parsed);
    ASSERT_TRUE(out.ok()) << seed << ": " << out.status().message();
    EXPECT_EQ(in.term, out->term);
    EXPECT_EQ(in.order, out->order);
    EXPECT_EQ(in.leaving, out->leaving);
    EXPECT_EQ(in.workers, out->workers) << seed;
    EXPECT_EQ(in.usage, out->usage) << seed;
  }
}

TEST(Convert, Ready_ComesBack) {
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    Maker make(seed);
    ReadyWorker in{make.AnySlot(), make.LiveInc(), make.Join()};
    auto out = FromWire(ToWire(in.slot, in.worker, in.info));
    ASSERT_TRUE(out.ok()) << seed << ": " << out.status().message();
    EXPECT_EQ(in.slot, out->slot);
    EXPECT_EQ(in.worker, out->worker);
    EXPECT_EQ(in.info, out->info) << seed;
  }
}

TEST(Convert, OrderAndWelcome_ComeBack) {
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    Maker make(seed);
    NodeOrder in{make.AnyTerm(), make.Any(), {}, make.Bool(), make.Bool(), make.Text()};
    for (uint64_t i = make.Upto(3); i > 0; --i) in.workers.push_back(make.Order());
    auto out = FromWire(ToWire(in));
    ASSERT_TRUE(out.ok()) << seed << ": " << out.status().message();
    EXPECT_EQ(std::tie(in.term, in.sequence, in.workers, in.quick, in.shutdown, in.reason),
              std::tie(out->term, out->sequence, out->workers, out->quick, out->shutdown, out->reason))
        << seed;
    Welcome w{make.AnyTerm(), make.Text(), make.Inc(),  make.Inc(), {"a", "", make.Path()}, 3, make.Any(), make.Wait(),
              make.Wait(),    make.Wait(), make.Wait(), make.Wait()};
    auto v = FromWire(ToWire(w));
    ASSERT_TRUE(v.ok()) << seed << ": " << v.status().message();
    EXPECT_EQ(std::tie(w.term, w.job, w.cluster, w.command, w.workers_per_node, w.seed, w.grace, w.heartbeat,
                       w.collective_deadline, w.park_deadline, w.freeze_deadline, w.adopts),
              std::tie(v->term, v->job, v->cluster, v->command, v->workers_per_node, v->seed, v->grace, v->heartbeat,
                       v->collective_deadline, v->park_deadline, v->freeze_deadline, v->adopts));
  }
}

TEST(Convert, View_ComesBack) {
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    Maker make(seed);
    ClusterView in;
    in.job = make.Text();
    in.phase = make.Enum(JobPhase::kFailed);
    in.step = make.AnyStep();
    in.loss = 2.25;
    in.nodes.push_back({make.Name(),
                        make.Enum(NodeState::kLeft),
                        make.Enum(Role::kSpare),
                        make.Bool(),
                        make.Text(),
                        make.Pid(),
                        make.Pid(),
                        make.AnyUsage(),
                        make.Text(),
                        {make.Worker()}});
    in.alarms.push_back({"node_silent", make.Name(), make.Text(), Duration(make.Ns())});
    in.ranks.push_back(
        {Rank(3), "", make.AnySlot(), make.Inc(), make.Pid(), make.AnyStep(), make.Path(), make.Path(), make.Any()});
    auto out = FromWire(ToWire(in));
    ASSERT_TRUE(out.ok()) << seed << ": " << out.status().message();
    // What came back goes out as the same bytes.
    EXPECT_EQ(ToWire(in).SerializeAsString(), ToWire(*out).SerializeAsString()) << seed;
    EXPECT_EQ(in.nodes[0].workers, out->nodes[0].workers);
    EXPECT_EQ(in.phase, out->phase);
    EXPECT_EQ(in.alarms, out->alarms);
    EXPECT_EQ(in.ranks[0].log_offset, out->ranks[0].log_offset);
    EXPECT_EQ(in.ranks[0].log, out->ranks[0].log);
  }
}

TEST(Convert, EveryEvent_ComesBack) {
  Maker make(7);
  Note note;
  std::vector<Event> events = {NodeConnected{1, make.Hello()},
                               NodeLost{2, "why"},
                               WorkerReady{3, Slot(1), make.LiveInc(), make.Join()},
                               NodeReported{4, make.Report()},
                               FailbackRequested{5, "node-1"},
                               AdoptRequested{6},
                               StoreChanged{"full", true},
                               StopRequested{"SIGINT"},
                               Tick{},
                               Paused{std::chrono::seconds(2)}};
  ASSERT_EQ(events.size(), std::variant_size_v<Event>);
  for (const Event& event : events) {
    auto out = FromWire(ToWire(event));
    ASSERT_TRUE(out.ok()) << out.status().message();
    EXPECT_EQ(out->index(), event.index());
    EXPECT_EQ(ToWire(*out).SerializeAsString(), ToWire(event).SerializeAsString());
  }
  EXPECT_FALSE(FromWire(wire::CoreEvent()).ok());
}

TEST(Convert, StoredState_ComesBack) {
  PersistentState in;
  in.spec.job = "j";
  in.spec.command = {"a", "b", "\xff\xfe"};
  in.spec.nodes = 2;
  in.spec.timeouts.hang = std::chrono::seconds(9);
  in.spec.limits = {1, 2, std::chrono::seconds(3)};
  in.spec.worker_to_spare = true;
  in.adopts = Incarnation(12);
  in.term = Term(2);
  in.phase = JobPhase::kStopping;
  in.generation = Generation(3);
  in.ranks = {{Rank(0), "node-0", "node-1", Slot(0), Incarnation(5)},
              {Rank(1), "node-1", "node-1", Slot(0), Incarnation(8)}};
  in.nodes = {{"node-0", NodeState::kProbation, Role::kSpare, Incarnation(6), "why"}, {"node-1"}};
  in.leaving = {{Rank(0), "node-1", "node-1", Slot(0), Incarnation(4)}};
  in.history = {{Generation(1), Step(0)}, {Generation(3), Step(77)}};
  auto out = FromWire(ToWire(in.spec, Term(9), Incarnation(8), &in));
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(out->term, Term(9));
  EXPECT_EQ(out->spec.timeouts.hang, in.spec.timeouts.hang);
  EXPECT_TRUE(*out->stored == in);
  EXPECT_EQ(ToWire(*out->stored).SerializeAsString(), ToWire(in).SerializeAsString());
  EXPECT_THAT(FromWire(ToWire(in.spec, Term(2), Incarnation(8), &in)).status().message(), HasSubstr("start.term"));
  in.ranks[1].node = "node-7";
  EXPECT_THAT(FromWire(ToWire(in.spec, Term(9), Incarnation(8), &in)).status().message(),
              HasSubstr("start.stored: rank 1 is on a node that is not known"));
  in.spec.nodes = 0;
  EXPECT_THAT(FromWire(ToWire(in.spec, Term(9), Incarnation(8), nullptr)).status().message(),
              HasSubstr("start.spec: the job has no workers"));
}

TEST(Convert, ValuesOutOfRange_AreRefusedByField) {
  auto hello = [](auto change) {
    wire::NodeHello h = ToWire(Maker(1).Hello());
    change(h);
    return FromWire(h).status().message();
  };
  EXPECT_THAT(hello([](auto& h) { h.set_name("../x"); }), HasSubstr("hello.name: is not a node name"));
  EXPECT_THAT(hello([](auto& h) { h.set_name(""); }), HasSubstr("hello.name"));
  EXPECT_THAT(hello([](auto& h) { h.set_agent(0); }), HasSubstr("hello.agent: is missing"));
  EXPECT_THAT(hello([](auto& h) { h.set_keeper_pid(-1); }), HasSubstr("hello.keeper_pid: negative"));
  EXPECT_THAT(hello([](auto& h) { h.set_term(UINT64_MAX); }), HasSubstr("hello.term"));
  EXPECT_THAT(hello([](auto& h) { h.set_slots(5000); }), HasSubstr("hello.slots"));
  EXPECT_THAT(hello([](auto& h) { h.set_version(std::string("a\0b", 3)); }), HasSubstr("zero byte"));

  auto report = [](auto change) {
    wire::NodeReport r;
    wire::WorkerReport* w = r.add_workers();
    change(*w, r);
    return FromWire(r).status().message();
  };
  EXPECT_EQ(report([](auto&, auto&) {}), "");
  EXPECT_THAT(report([](auto& w, auto&) { w.set_slot(1024); }), HasSubstr("worker.slot"));
  EXPECT_THAT(report([](auto& w, auto&) { w.mutable_exit()->set_signal(INT32_MAX); }), HasSubstr("exit.signal"));
  EXPECT_THAT(report([](auto& w, auto&) { w.mutable_exit()->set_status(-1); }), HasSubstr("exit.status"));
  EXPECT_THAT(report([](auto& w, auto&) { w.set_life(static_cast<wire::WorkerLife>(3)); }),
              HasSubstr("worker.life: unknown value 3"));
  EXPECT_THAT(report([](auto& w, auto&) { w.mutable_state()->set_rank(UINT32_MAX); }), HasSubstr("rank"));
  EXPECT_THAT(report([](auto& w, auto&) { w.mutable_state()->set_frozen(kMaxGeneration + 1); }), HasSubstr("frozen"));
  EXPECT_THAT(report([](auto& w, auto&) { w.mutable_state()->set_starting(kMaxStep + 1); }), HasSubstr("starting"));
  EXPECT_THAT(report([](auto& w, auto&) { w.mutable_state()->set_position(static_cast<wire::Position>(-1)); }),
              HasSubstr("position"));
  EXPECT_THAT(report([](auto& w, auto&) { w.set_log(std::string(kMaxText + 1, 'x')); }),
              HasSubstr("worker.log: longer"));
  EXPECT_THAT(report([](auto&, auto& r) { r.mutable_usage()->set_cpu_permille(1001); }),
              HasSubstr("usage.cpu_permille"));
  EXPECT_THAT(report([](auto&, auto& r) {
                for (int i = 0; i < kMaxWorkersPerNode; ++i) r.add_workers();
              }),
              HasSubstr("report.workers: has 1025"));

  wire::NodeOrder order;
  order.add_workers()->set_mode(static_cast<wire::Mode>(5));
  EXPECT_THAT(FromWire(order).status().message(), HasSubstr("order.mode"));
  const auto welcome = [](auto change) {
    wire::Welcome w;
    w.add_command("a");
    w.set_workers_per_node(1);
    change(w);
    return FromWire(w).status().message();
  };
  EXPECT_EQ(welcome([](auto&) {}), "");
  EXPECT_THAT(welcome([](auto& w) { w.set_grace_ns(-1); }), HasSubstr("welcome.grace: negative"));
  EXPECT_THAT(welcome([](auto& w) { w.set_heartbeat_ns(INT64_MAX); }), HasSubstr("longer than a year"));
  EXPECT_THAT(welcome([](auto& w) { w.clear_command(); }), HasSubstr("welcome.command: is missing"));
  EXPECT_THAT(welcome([](auto& w) { w.clear_workers_per_node(); }), HasSubstr("welcome.workers_per_node"));
}

TEST(Convert, LongAndBrokenText_IsCutAndCleaned) {
  NodeReport report;
  report.workers.emplace_back().exit = WorkerExit{1, 0, false, "w", std::string(kMaxText, 'a') + "end\xff\xc3"};
  auto out = FromWire(ToWire(report));
  ASSERT_TRUE(out.ok()) << out.status().message();
  const std::string& tail = out->workers[0].exit->log_tail;
  EXPECT_EQ(tail.size(), kMaxText);
  EXPECT_EQ(tail.substr(tail.size() - 5), "end??");
  EXPECT_EQ(Clean("\xf0\x9f\x98\x80 ok \xed\xa0\x80"), "\xf0\x9f\x98\x80 ok ???");
  EXPECT_EQ(Clean(std::string("a\0b", 3)), "a?b");
}

}  // namespace
}  // namespace locum
