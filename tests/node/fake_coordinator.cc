#include "tests/node/fake_coordinator.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "adapters/posix/monotonic.h"
#include "base/check.h"
#include "ports/field_codec.h"

namespace locum::test {
namespace {

enum Kind : uint8_t { kHello, kReady, kReport, kUp, kOrder, kRefused, kLost };

void PutHello(Writer& w, const NodeHello& v) {
  w.Str(v.name);
  w.Str(v.job);
  w.Str(v.address);
  w.U64(v.keeper.value);
  w.U64(v.agent.value);
  w.U32(static_cast<uint32_t>(v.keeper_pid));
  w.U32(static_cast<uint32_t>(v.agent_pid));
  w.U64(v.term.value);
  w.Str(v.dir);
}

NodeHello GetHello(FieldReader& r) {
  NodeHello v;
  v.name = r.Str();
  v.job = r.Str();
  v.address = r.Str();
  v.keeper = Incarnation(r.U64());
  v.agent = Incarnation(r.U64());
  v.keeper_pid = static_cast<int32_t>(r.U32());
  v.agent_pid = static_cast<int32_t>(r.U32());
  v.term = Term(r.U64());
  v.dir = r.Str();
  return v;
}

void PutReport(Writer& w, const NodeReport& v) {
  w.U64(v.term.value);
  w.U64(v.order);
  w.U64(v.usage.memory_total);
  w.List(v.workers, [&](const WorkerReport& one) {
    w.U32(one.slot.value);
    w.U64(one.worker.value);
    w.U32(static_cast<uint32_t>(one.pid));
    w.U8(static_cast<uint8_t>(one.life));
    w.Bool(one.exit.has_value());
    if (one.exit) {
      w.U32(static_cast<uint32_t>(one.exit->status));
      w.U32(static_cast<uint32_t>(one.exit->signal));
      w.Bool(one.exit->stopped);
      w.Str(one.exit->what);
      w.Str(one.exit->log_tail);
    }
    Put(w, one.state);
    w.Str(one.log);
    w.U64(one.log_offset);
    w.Str(one.step_log);
  });
}

NodeReport GetReport(FieldReader& r) {
  NodeReport v;
  v.term = Term(r.U64());
  v.order = r.U64();
  v.usage.memory_total = r.U64();
  r.List(&v.workers, [&] {
    WorkerReport one;
    one.slot = Slot(r.U32());
    one.worker = Incarnation(r.U64());
    one.pid = static_cast<int32_t>(r.U32());
    one.life = static_cast<WorkerLife>(r.U8());
    if (r.Bool()) {
      one.exit.emplace();
      one.exit->status = static_cast<int32_t>(r.U32());
      one.exit->signal = static_cast<int32_t>(r.U32());
      one.exit->stopped = r.Bool();
      one.exit->what = r.Str();
      one.exit->log_tail = r.Str();
    }
    one.state = GetWorkerState(r);
    one.log = r.Str();
    one.log_offset = r.U64();
    one.step_log = r.Str();
    return one;
  });
  return v;
}

void PutWelcome(Writer& w, const Welcome& v) {
  w.U64(v.term.value);
  w.Str(v.job);
  w.U64(v.cluster.value);
  w.List(v.command, [&](const std::string& word) { w.Str(word); });
  w.U32(v.workers_per_node);
  w.U64(v.seed);
  for (Duration d : {v.grace, v.heartbeat, v.collective_deadline, v.park_deadline, v.freeze_deadline}) w.I64(d.count());
}

Welcome GetWelcome(FieldReader& r) {
  Welcome v;
  v.term = Term(r.U64());
  v.job = r.Str();
  v.cluster = Incarnation(r.U64());
  r.List(&v.command, [&] { return r.Str(); });
  v.workers_per_node = r.U32();
  v.seed = r.U64();
  for (Duration* d : {&v.grace, &v.heartbeat, &v.collective_deadline, &v.park_deadline, &v.freeze_deadline}) {
    *d = Duration(r.I64());
  }
  return v;
}

void PutOrder(Writer& w, const NodeOrder& v) {
  w.U64(v.term.value);
  w.U64(v.sequence);
  w.Bool(v.shutdown);
  w.Str(v.reason);
  w.List(v.workers, [&](const WorkerOrder& one) {
    Put(w, one);  // as a worker is told it
    w.Bool(one.hung);
    w.Bool(one.expendable);
  });
}

NodeOrder GetOrder(FieldReader& r) {
  NodeOrder v;
  v.term = Term(r.U64());
  v.sequence = r.U64();
  v.shutdown = r.Bool();
  v.reason = r.Str();
  r.List(&v.workers, [&] {
    WorkerOrder one = GetWorkerOrder(r);
    one.hung = r.Bool();
    one.expendable = r.Bool();
    return one;
  });
  return v;
}

std::string EncodeEvent(const LinkEvent& event) {
  Writer w;
  if (const auto* up = std::get_if<LinkUp>(&event)) {
    w.U8(kUp);
    PutWelcome(w, up->welcome);
  } else if (const auto* order = std::get_if<LinkOrder>(&event)) {
    w.U8(kOrder);
    PutOrder(w, order->order);
  } else if (const auto* refused = std::get_if<LinkRefused>(&event)) {
    w.U8(kRefused);
    w.Str(refused->reason);
  } else {
    w.U8(kLost);
    w.Str(std::get<LinkLost>(event).reason);
  }
  return w.Take();
}

LinkEvent DecodeEvent(const std::string& packet) {
  FieldReader r(packet);
  switch (r.U8()) {
    case kUp: return LinkUp{GetWelcome(r)};
    case kOrder: return LinkOrder{GetOrder(r)};
    case kRefused: return LinkRefused{r.Str()};
    default: return LinkLost{r.Str()};
  }
}

class FakeLink : public CoordinatorLink {
 public:
  explicit FakeLink(std::string path) : path_(std::move(path)), stop_(::eventfd(0, EFD_CLOEXEC)) {}
  ~FakeLink() override { Stop(); }

  void Start(const NodeHello& hello, std::function<void(LinkEvent)> deliver) override {
    Result<OwnedFd> fd = ConnectSeqpacket(path_, MonotonicNow() + std::chrono::seconds(5));
    if (!fd.ok()) return;  // a node without a coordinator
    fd_ = std::move(*fd);
    UpdateHello(hello);
    thread_ = std::thread([this, deliver] { Read(deliver); });
  }
  void UpdateHello(const NodeHello& hello) override {
    Writer w;
    w.U8(kHello);
    PutHello(w, hello);
    Send(w.Take());
  }
  void ConnectAgain() override {}  // a test's coordinator knows the node already
  void SendReady(Slot, Incarnation, const JoinInfo& info) override {
    Writer w;
    w.U8(kReady);
    Put(w, info);
    Send(w.Take());
  }
  void SendReport(const NodeReport& report) override {
    Writer w;
    w.U8(kReport);
    PutReport(w, report);
    Send(w.Take());
  }
  void Stop() override {
    if (!thread_.joinable()) return;
    uint64_t one = 1;
    LOCUM_CHECK(::write(stop_.get(), &one, sizeof one) == sizeof one);
    thread_.join();
  }

 private:
  void Send(const std::string& packet) {
    if (fd_.valid()) (void)SendPacket(fd_.get(), packet);
  }
  void Read(const std::function<void(LinkEvent)>& deliver) {
    PacketReceiver receiver(1u << 20);
    while (true) {
      pollfd fds[] = {{fd_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      ::poll(fds, 2, -1);
      if (fds[1].revents != 0) return;
      Result<std::optional<Packet>> packet = receiver.Receive(fd_.get());
      if (!packet.ok()) {
        deliver(LinkLost{packet.status().message()});
        return;
      }
      if (packet->has_value()) deliver(DecodeEvent((*packet)->bytes));
    }
  }

  std::string path_;
  OwnedFd stop_;
  OwnedFd fd_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<CoordinatorLink> MakeFakeLink(const std::string& socket_path) {
  return std::make_unique<FakeLink>(socket_path);
}

FakeCoordinator::FakeCoordinator(const std::string& socket_path) : receiver_(1u << 20) {
  Result<OwnedFd> listener = ListenSeqpacket(socket_path, 8);
  LOCUM_CHECK(listener.ok());
  listener_ = std::move(*listener);
}

Time FakeCoordinator::Deadline(Duration patience) { return MonotonicNow() + patience; }

bool FakeCoordinator::AwaitAgent(Duration patience) {
  agent_.Reset();
  if (!WaitPacket(listener_.get(), Deadline(patience)).ok()) return false;
  Result<OwnedFd> agent = AcceptSeqpacket(listener_.get());
  if (!agent.ok() || !agent->valid()) return false;
  agent_ = std::move(*agent);
  hello_ = NodeHello();
  report_ = NodeReport();
  reports_ = readies_ = 0;
  return Await(patience, [](const FakeCoordinator& c) { return c.hello().agent_pid != 0; });
}

void FakeCoordinator::Disconnect() { agent_.Reset(); }

void FakeCoordinator::Send(const LinkEvent& event) {
  Result<bool> sent = SendPacket(agent_.get(), EncodeEvent(event));
  LOCUM_CHECK(sent.ok());
}

bool FakeCoordinator::ReadOne(Time deadline) {
  if (!agent_.valid() || !WaitPacket(agent_.get(), deadline).ok()) return false;
  Result<std::optional<Packet>> packet = receiver_.Receive(agent_.get());
  if (!packet.ok()) {
    agent_.Reset();
    return false;
  }
  if (!packet->has_value()) return true;
  FieldReader r((*packet)->bytes);
  switch (r.U8()) {
    case kHello: hello_ = GetHello(r); break;
    case kReady:
      ready_ = GetJoinInfo(r);
      ++readies_;
      break;
    case kReport:
      report_ = GetReport(r);
      ++reports_;
      break;
  }
  LOCUM_CHECK(r.Done());
  return true;
}

WorkerReport FakeCoordinator::Worker(uint32_t slot) const {
  for (const WorkerReport& worker : report_.workers) {
    if (worker.slot.value == slot) return worker;
  }
  return {};
}

}  // namespace locum::test
