// Test support: a node as a worker sees it (socket, page, messages) and enough of a coordinator to lead workers
// through generations. Single-threaded: the test's thread pumps the messages while it waits.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "adapters/posix/mapping.h"
#include "adapters/posix/monotonic.h"
#include "adapters/posix/seqpacket.h"
#include "ports/page.h"
#include "ports/worker_protocol.h"

namespace locum::testing {

inline constexpr Duration kPatience = std::chrono::seconds(20);

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/locum_test_XXXXXX";
    if (!::mkdtemp(name)) abort();
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// One worker's connection, from the node's end.
class NodeEnd {
 public:
  WorkerWelcome welcome;
  OwnedFd socket;
  OwnedFd page_fd;
  Mapping page_memory;
  std::optional<JoinInfo> info;
  WorkerState state;
  int states = 0, readies = 0;
  bool gone = false;

  Page* page() { return reinterpret_cast<Page*>(page_memory.data()); }
  void Send(const std::string& packet) {
    for (int i = 0; i < 2000; ++i) {
      Result<bool> sent = SendPacket(socket.get(), packet);
      if (!sent.ok()) return;
      if (*sent) return;
      ::usleep(1000);
    }
    ADD_FAILURE() << "the worker does not take its orders";
  }
  // Reads what is there.
  void Pump() {
    while (!gone) {
      Result<std::optional<Packet>> packet = receiver_.Receive(socket.get());
      if (!packet.ok()) {
        gone = true;
        return;
      }
      if (!*packet) return;
      Result<WorkerMessage> type = TypeOf((*packet)->bytes);
      ASSERT_TRUE(type.ok()) << type.status().message();
      if (*type == WorkerMessage::kReady) {
        Result<JoinInfo> ready = DecodeReady((*packet)->bytes);
        ASSERT_TRUE(ready.ok()) << ready.status().message();
        info = *ready;
        ++readies;
      } else {
        Result<WorkerState> decoded = DecodeState((*packet)->bytes);
        ASSERT_TRUE(decoded.ok()) << decoded.status().message();
        state = *decoded;
        ++states;
      }
    }
  }
  bool Wait(const std::function<bool()>& condition, Duration patience = kPatience) {
    const Time deadline = MonotonicNow() + patience;
    while (true) {
      Pump();
      if (condition()) return true;
      if (MonotonicNow() >= deadline) return false;
      pollfd polled{socket.get(), POLLIN, 0};
      ::poll(&polled, 1, gone ? 1 : 2);
    }
  }

 private:
  PacketReceiver receiver_{kMaxWorkerMessage};
};

class FakeNode {
 public:
  FakeNode() {
    Result<OwnedFd> listening = ListenSeqpacket(socket_path(), 16);
    if (!listening.ok()) abort();
    listener_ = std::move(*listening);
  }

  std::string socket_path() const { return dir_ / "keeper.sock"; }
  const TempDir& dir() const { return dir_; }

  // The next worker's Join, not answered yet.
  Result<JoinRequest> AcceptJoin(OwnedFd* socket) {
    const Time deadline = MonotonicNow() + kPatience;
    LOCUM_RETURN_IF_ERROR(WaitPacket(listener_.get(), deadline));
    Result<OwnedFd> accepted = AcceptSeqpacket(listener_.get());
    if (!accepted.ok()) return accepted.status();
    PacketReceiver receiver(kMaxWorkerMessage);
    LOCUM_RETURN_IF_ERROR(WaitPacket(accepted->get(), deadline));
    Result<std::optional<Packet>> packet = receiver.Receive(accepted->get());
    if (!packet.ok()) return packet.status();
    *socket = std::move(*accepted);
    return DecodeJoin((*packet)->bytes);
  }

  // Admits the next worker.
  std::unique_ptr<NodeEnd> Admit(const std::string& address = "127.0.0.1") {
    auto end = std::make_unique<NodeEnd>();
    Result<JoinRequest> join = AcceptJoin(&end->socket);
    if (!join.ok()) {
      ADD_FAILURE() << join.status().message();
      return nullptr;
    }
    EXPECT_EQ(join->protocol, kProtocolVersion);
    WorkerWelcome& w = end->welcome;
    w.job = "job-1";
    w.node = "n0";
    w.slot = Slot(admitted_);
    w.worker = join->worker;
    w.token = "secret";
    w.address = address;
    w.step_log = dir_ / ("steps." + std::to_string(admitted_++));
    w.seed = 42;
    Result<OwnedFd> memory = MakeSharedMemory("page", kPageBytes);
    Result<Mapping> mapped = Mapping::Shared(memory->get(), 0, kPageBytes);
    end->page_fd = std::move(*memory);
    end->page_memory = std::move(*mapped);
    end->page()->magic = kPageMagic;
    end->page()->stop_at = kMaxStep;
    Result<bool> sent = SendPacket(end->socket.get(), EncodeWelcome(w), {end->page_fd.get()});
    EXPECT_TRUE(sent.ok() && *sent);
    return end;
  }

 private:
  TempDir dir_;
  OwnedFd listener_;
  uint32_t admitted_ = 0;
};

// Leads workers through a generation; the vector is by rank.
class Conductor {
 public:
  explicit Conductor(std::vector<NodeEnd*> ranks) : ranks_(std::move(ranks)) {}

  WorkerOrder Order(size_t rank, Mode mode, uint64_t generation) const {
    WorkerOrder order;
    order.worker = ranks_[rank]->welcome.worker;
    order.mode = mode;
    order.generation = Generation(generation);
    order.rank = Rank(static_cast<uint32_t>(rank));
    order.world = static_cast<uint32_t>(ranks_.size());
    return order;
  }
  Peer PeerOf(size_t rank) const {
    return {Rank(static_cast<uint32_t>(rank)), ranks_[rank]->welcome.worker, ranks_[rank]->info->data_address};
  }
  void WaitReady() {
    for (NodeEnd* end : ranks_) ASSERT_TRUE(end->Wait([&] { return end->info.has_value(); }));
  }
  void Freeze(uint64_t generation) {
    for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->Send(EncodeOrder(Order(r, Mode::kFreeze, generation)));
    for (NodeEnd* end : ranks_) {
      ASSERT_TRUE(end->Wait([&] { return end->state.frozen == Generation(generation); }));
    }
  }
  // `sources` empty: nobody pulls.
  void Recover(uint64_t generation, uint64_t step, const std::vector<size_t>& pullers = {},
               const std::vector<Peer>& sources = {}, bool staged = false) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      WorkerOrder order = Order(r, Mode::kRecover, generation);
      order.recovery_step = Step(step);
      order.pull = std::find(pullers.begin(), pullers.end(), r) != pullers.end();
      order.staged = order.pull && staged;
      order.sources = sources;
      ranks_[r]->Send(EncodeOrder(order));
    }
  }
  void WaitVerified(uint64_t generation) {
    for (NodeEnd* end : ranks_) {
      ASSERT_TRUE(end->Wait([&] { return end->state.verified.generation == Generation(generation); }))
          << end->state.pull_error;
      EXPECT_EQ(end->state.verified.state_hash, ranks_[0]->state.verified.state_hash);
    }
  }
  void Run(uint64_t generation) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      WorkerOrder order = Order(r, Mode::kRun, generation);
      for (size_t p = 0; p < ranks_.size(); ++p) order.peers.push_back(PeerOf(p));
      ranks_[r]->Send(EncodeOrder(order));
    }
  }
  void Finish(uint64_t generation) {
    for (NodeEnd* end : ranks_) ASSERT_TRUE(end->Wait([&] { return end->state.done; }));
    for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->Send(EncodeOrder(Order(r, Mode::kFinish, generation)));
  }
  // From ready workers to a running first generation.
  void Start(uint64_t generation = 1, uint64_t step = 0) {
    WaitReady();
    Freeze(generation);
    Recover(generation, step);
    WaitVerified(generation);
    Run(generation);
  }

 private:
  std::vector<NodeEnd*> ranks_;
};

}  // namespace locum::testing
