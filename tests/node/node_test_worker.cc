// A worker that does what its arguments say, one after the other, and speaks the protocol itself.
//
//   print TEXT       a line on standard output
//   exit N           ends with status N
//   raise N          ends by signal N
//   ignore-term      ignores SIGTERM
//   tell-term        prints "term" on SIGTERM and ends with status 0
//   child            forks a child that sleeps
//   orphan           a grandchild in a session of its own, whose parent has ended, deaf to SIGTERM
//   join             joins, and says Ready and State
//   join-as HEX      joins as another incarnation
//   position N       sets the page's position
//   commit N         sets the page's word to open state N of generation 1
//   starting N       sets the page's step that is begun
//   say-broken       reports a broken collective
//   leave            closes the connection
//   serve            answers orders, like a trainer that is always parked
//   serve-deaf       takes orders and answers none
//   sleep            sleeps for good
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "adapters/posix/mapping.h"
#include "adapters/posix/monotonic.h"
#include "adapters/posix/seqpacket.h"
#include "ports/page.h"
#include "ports/worker_protocol.h"

namespace locum {
namespace {

void Print(const std::string& text) {
  std::string line = text + "\n";
  if (::write(1, line.data(), line.size()) < 0) ::_exit(99);
}

[[noreturn]] void Fail(const std::string& text) {
  Print(text);
  ::_exit(98);
}

[[noreturn]] void SleepForGood() {
  while (true) ::pause();
}

class TestWorker {
 public:
  void Join(const std::string& incarnation) {
    Result<OwnedFd> fd = ConnectSeqpacket(std::getenv(kSocketVariable), MonotonicNow() + std::chrono::seconds(10));
    if (!fd.ok()) Fail(fd.status().message());
    fd_ = std::move(*fd);
    JoinRequest request{kProtocolVersion, Incarnation(), kVersion};
    if (!ParseHex(incarnation, &request.worker.value)) Fail("bad incarnation");
    Send(EncodeJoin(request));
    Packet packet = Receive();
    Result<WorkerMessage> type = TypeOf(packet.bytes);
    if (type.ok() && *type == WorkerMessage::kRefused) Fail("refused: " + *DecodeRefused(packet.bytes));
    Result<WorkerWelcome> welcome = DecodeWelcome(packet.bytes);
    if (!welcome.ok() || packet.descriptors.size() != 1) Fail("no welcome");
    Result<Mapping> mapping = Mapping::Shared(packet.descriptors[0].get(), 0, kPageBytes);
    if (!mapping.ok() || page_magic(*mapping) != kPageMagic) Fail("no page");
    mapping_ = std::move(*mapping);
    Print("joined " + welcome->job + " as " + welcome->node + " at " + welcome->address + " with " + welcome->token);
    SayAll();
  }

  void Serve(bool answer) {
    while (true) {
      Packet packet = Receive();
      Result<WorkerMessage> type = TypeOf(packet.bytes);
      if (!type.ok()) Fail(type.status().message());
      if (*type == WorkerMessage::kResend) {
        Print("resend");
        SayAll();
      } else if (*type == WorkerMessage::kAbort) {
        Print("abort " + std::to_string(DecodeAbort(packet.bytes)->value));
      } else if (*type == WorkerMessage::kOrder) {
        WorkerOrder order = *DecodeOrder(packet.bytes);
        Print("order mode " + std::to_string(static_cast<int>(order.mode)) + " generation " +
              std::to_string(order.generation.value) + " " + order.refuse + " page stop_at " +
              std::to_string(page()->stop_at.load()));
        if (answer) Answer(order);
      }
    }
  }

  void SayBroken() {
    state_.broken = Generation(1);
    state_.broken_why = "said at the end";
    Send(EncodeState(state_));
  }

  void Leave() { fd_.Reset(); }

  Page* page() { return reinterpret_cast<Page*>(mapping_.data()); }

 private:
  static uint64_t page_magic(const Mapping& m) { return reinterpret_cast<Page*>(m.data())->magic.load(); }

  void Answer(const WorkerOrder& order) {
    if (order.mode == Mode::kFreeze) {
      state_.frozen = state_.parked = order.generation;
      state_.holding = Holding{true, Generation(), Step()};
    } else if (order.mode == Mode::kRecover) {
      state_.rank = order.rank;
      state_.verified.generation = order.generation;
      state_.verified.state_hash = 0x1234;
    } else if (order.mode == Mode::kRun) {
      state_.rank = order.rank;
      page()->word.store(Word{order.generation, order.recovery_step, WordState::kOpen}.Pack());
    } else if (order.mode == Mode::kFinish) {
      Print("finished");
      ::_exit(0);
    }
    Send(EncodeState(state_));
  }

  void SayAll() {
    JoinInfo info;
    info.protocol = kProtocolVersion;
    info.library = kVersion;
    info.shards = {{"weights", 64, "all"}};
    info.data_address = "127.0.0.1:1";
    Send(EncodeReady(info));
    Send(EncodeState(state_));
  }

  void Send(const std::string& packet) {
    Result<bool> sent = SendPacket(fd_.get(), packet);
    if (!sent.ok()) Fail(sent.status().message());
  }

  Packet Receive() {
    while (true) {
      if (!WaitPacket(fd_.get(), MonotonicNow() + std::chrono::hours(1)).ok()) Fail("nothing comes");
      Result<std::optional<Packet>> packet = receiver_.Receive(fd_.get());
      if (!packet.ok()) Fail("node gone: " + packet.status().message());
      if (packet->has_value()) return std::move(**packet);
    }
  }

  PacketReceiver receiver_{kMaxWorkerMessage};
  OwnedFd fd_;
  Mapping mapping_;
  WorkerState state_;
};

void MakeOrphan() {
  if (::fork() != 0) return;
  ::setsid();
  ::signal(SIGTERM, SIG_IGN);
  if (::fork() != 0) ::_exit(0);
  SleepForGood();
}

void Run(int argc, char** argv) {
  TestWorker worker;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    auto next = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (word == "print") Print(next());
    if (word == "exit") ::_exit(std::atoi(next().c_str()));
    if (word == "raise") {
      int number = std::atoi(next().c_str());
      ::signal(number, SIG_DFL);  // a sanitizer would turn it into an exit status
      ::raise(number);
    }
    if (word == "ignore-term") ::signal(SIGTERM, SIG_IGN);
    if (word == "tell-term") {
      ::signal(SIGTERM, [](int) {
        Print("term");
        ::_exit(0);
      });
    }
    if (word == "child" && ::fork() == 0) SleepForGood();
    if (word == "orphan") MakeOrphan();
    if (word == "join") worker.Join(std::getenv(kWorkerVariable));
    if (word == "join-as") worker.Join(next());
    if (word == "position") worker.page()->position.store(static_cast<uint32_t>(std::atoi(next().c_str())));
    if (word == "commit") {
      worker.page()->word.store(
          Word{Generation(1), Step(static_cast<uint64_t>(std::atoi(next().c_str()))), WordState::kOpen}.Pack());
    }
    if (word == "starting") worker.page()->starting.store(static_cast<uint64_t>(std::atoi(next().c_str())));
    if (word == "say-broken") worker.SayBroken();
    if (word == "leave") worker.Leave();
    if (word == "serve") worker.Serve(true);
    if (word == "serve-deaf") worker.Serve(false);
    if (word == "sleep") SleepForGood();
  }
}

}  // namespace
}  // namespace locum

int main(int argc, char** argv) {
  locum::Run(argc, argv);
  return 0;
}
