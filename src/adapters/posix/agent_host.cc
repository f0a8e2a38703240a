#include "adapters/posix/agent_host.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "adapters/posix/monotonic.h"
#include "adapters/posix/node_files.h"
#include "adapters/posix/pidfd.h"
#include "ports/worker_protocol.h"

extern char** environ;

namespace locum {
namespace {

constexpr size_t kMaxToKeeper = 8192;

}  // namespace

Result<std::unique_ptr<PosixAgentHost>> PosixAgentHost::Create(int keeper_fd) {
  std::unique_ptr<PosixAgentHost> host(new PosixAgentHost);
  Status opened = host->Open(keeper_fd);
  if (!opened.ok()) return opened;
  return host;
}

Status PosixAgentHost::Open(int keeper_fd) {
  ::signal(SIGPIPE, SIG_IGN);
  if (::fcntl(keeper_fd, F_SETFD, FD_CLOEXEC) != 0) {
    return Invalid("descriptor " + std::to_string(keeper_fd) +
                   " is no channel to a keeper; this command is started by `locum agent`, not by hand");
  }
  keeper_ = OwnedFd(keeper_fd);
  wake_ = OwnedFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return ErrnoStatus(errno, "cannot make an eventfd");
  keeper_watch_ = poll_.Add(keeper_.get(), EPOLLIN, [this](uint32_t events) {
    if ((events & EPOLLOUT) != 0) FlushKeeper();
    if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) HearKeeper();
  });
  wake_watch_ = poll_.Add(wake_.get(), EPOLLIN, [this](uint32_t) {
    uint64_t count;
    [[maybe_unused]] ssize_t got = ::read(wake_.get(), &count, sizeof count);
  });
  return OkStatus();
}

Time PosixAgentHost::Now() { return MonotonicNow(); }

uint64_t PosixAgentHost::Draw() { return DrawRandom(); }

std::vector<AgentHostEvent> PosixAgentHost::Wait(Time until) {
  poll_.Wait(events_.empty() ? until : Now());
  return std::exchange(events_, {});
}

void PosixAgentHost::Wake() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

// ---- The keeper ------------------------------------------------------------------------------------------------

Status PosixAgentHost::ToKeeper(std::string packet) {
  if (packet.size() > kMaxKeeperMessage) {
    return Invalid("a message of " + std::to_string(packet.size()) + " bytes to the keeper is too long");
  }
  if (to_keeper_.size() >= kMaxToKeeper) return Unavailable("the keeper does not read");
  to_keeper_.push_back(std::move(packet));
  FlushKeeper();
  return OkStatus();
}

void PosixAgentHost::FlushKeeper() {
  while (!to_keeper_.empty()) {
    Result<bool> sent = SendPacket(keeper_.get(), to_keeper_.front());
    if (sent.ok() && !*sent) break;
    if (!sent.ok()) Log("keeper_not_told", sent.status().message());
    to_keeper_.pop_front();
  }
  keeper_watch_.Change(to_keeper_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void PosixAgentHost::HearKeeper() {
  while (true) {
    Result<std::optional<Packet>> received = keeper_receiver_.Receive(keeper_.get());
    if (received.ok() && !received->has_value()) return;
    if (!received.ok()) {
      keeper_watch_.Reset();
      events_.push_back(KeeperGone{});
      return;
    }
    Packet& packet = **received;
    Result<KeeperMessage> type = KeeperTypeOf(packet.bytes);
    if (type.ok() && *type == KeeperMessage::kHello) {
      Result<KeeperHello> hello = DecodeKeeperHello(packet.bytes);
      if (hello.ok()) events_.push_back(std::move(*hello));
    } else if (type.ok() && *type == KeeperMessage::kWorker) {
      Result<WorkerRecord> record = DecodeWorker(packet.bytes);
      if (record.ok()) TakeRecord(std::move(*record), std::move(packet.descriptors));
    } else {
      Log("keeper_message_ignored", type.ok() ? "not for an agent" : type.status().message());
    }
  }
}

void PosixAgentHost::TakeRecord(WorkerRecord record, std::vector<OwnedFd> descriptors) {
  Incarnation worker = record.worker;
  bool joined = record.joined;
  if (!joined) {
    HearWorker(worker);  // what it said last comes before its end
    Close(worker);
  }
  events_.push_back(std::move(record));
  if (!joined) return;
  if (Find(worker) != nullptr) return;
  Status adopted = descriptors.size() == 2 ? Adopt(worker, std::move(descriptors))
                                           : Unavailable("its connection was closed as it joined");
  if (!adopted.ok()) events_.push_back(ConnectionLost{worker, adopted.message()});
}

// ---- The workers -----------------------------------------------------------------------------------------------

Status PosixAgentHost::Adopt(Incarnation worker, std::vector<OwnedFd> descriptors) {
  LOCUM_RETURN_IF_ERROR(CheckSharedMemory(descriptors[1].get(), kPageBytes));
  Result<Mapping> mapping = Mapping::Shared(descriptors[1].get(), 0, kPageBytes);
  if (!mapping.ok()) return mapping.status();
  Link& link = links_[worker];
  link.connection = std::move(descriptors[0]);
  link.mapping = std::move(*mapping);
  link.watch = poll_.Add(link.connection.get(), EPOLLIN, [this, worker](uint32_t events) {
    Link* mine = Find(worker);
    if (mine != nullptr && (events & EPOLLOUT) != 0) FlushWorker(worker, mine);
    if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) HearWorker(worker);
  });
  return OkStatus();
}

void PosixAgentHost::HearWorker(Incarnation worker) {
  // A worker that talks without end must not keep the others from being heard.
  for (int i = 0; i < 64; ++i) {
    Link* link = Find(worker);
    if (link == nullptr) return;
    Result<std::optional<Packet>> received = worker_receiver_.Receive(link->connection.get());
    if (received.ok() && !received->has_value()) return;
    Status delivered = received.ok() ? Deliver(worker, (*received)->bytes) : received.status();
    if (!delivered.ok()) return Lose(worker, delivered.message());
  }
}

Status PosixAgentHost::Deliver(Incarnation worker, const std::string& packet) {
  Result<WorkerMessage> type = TypeOf(packet);
  if (!type.ok()) return type.status();
  if (*type == WorkerMessage::kReady) {
    Result<JoinInfo> info = DecodeReady(packet);
    if (!info.ok()) return info.status();
    events_.push_back(ReadyHeard{worker, std::move(*info)});
    return OkStatus();
  }
  if (*type == WorkerMessage::kState) {
    Result<WorkerState> state = DecodeState(packet);
    if (!state.ok()) return state.status();
    events_.push_back(StateHeard{worker, std::move(*state)});
    return OkStatus();
  }
  return Invalid("a message that only a node sends came from a worker");
}

void PosixAgentHost::Close(Incarnation worker) {
  Link* link = Find(worker);
  if (link == nullptr) return;
  events_.push_back(ReadPage(worker, *link->page()));
  links_.erase(worker);
}

void PosixAgentHost::Lose(Incarnation worker, const std::string& why) {
  Close(worker);
  events_.push_back(ConnectionLost{worker, why});
}

void PosixAgentHost::FlushWorker(Incarnation worker, Link* link) {
  for (std::optional<std::string>* slot : {&link->resend, &link->order, &link->abort}) {
    if (!*slot) continue;
    Result<bool> sent = SendPacket(link->connection.get(), **slot);
    if (sent.ok() && !*sent) {
      link->watch.Change(EPOLLIN | EPOLLOUT);
      return;
    }
    slot->reset();
    // Its end is heard by reading, after what it said last.
    if (!sent.ok()) Log("worker_not_told", "worker " + ToHex(worker.value) + ": " + sent.status().message());
  }
  link->watch.Change(EPOLLIN);
}

void PosixAgentHost::Relay(Incarnation worker, const WorkerOrder& order) {
  Link* link = Find(worker);
  if (link == nullptr) return;
  link->order = EncodeOrder(order);
  FlushWorker(worker, link);
}

void PosixAgentHost::Abort(Incarnation worker, Generation generation) {
  Link* link = Find(worker);
  if (link == nullptr) return;
  link->abort = EncodeAbort(generation);
  FlushWorker(worker, link);
}

void PosixAgentHost::AskAgain(Incarnation worker) {
  Link* link = Find(worker);
  if (link == nullptr) return;
  link->resend = EncodeResend();
  FlushWorker(worker, link);
}

PosixAgentHost::Link* PosixAgentHost::Find(Incarnation worker) {
  auto it = links_.find(worker);
  return it == links_.end() ? nullptr : &it->second;
}

PageReading PosixAgentHost::ReadPage(Incarnation worker, const Page& page) {
  PageReading reading;
  reading.worker = worker;
  reading.stop_at = Step(page.stop_at.load() & kMaxStep);
  reading.starting = Step(page.starting.load() & kMaxStep);
  reading.word = Word::Unpack(page.word.load());
  // The page is the worker's to write: what is out of range must not go further.
  uint32_t position = page.position.load();
  reading.position =
      position <= static_cast<uint32_t>(Position::kParked) ? static_cast<Position>(position) : Position::kStarting;
  reading.has_loss = page.has_loss.load() != 0;
  reading.loss = std::bit_cast<double>(page.loss_bits.load());
  return reading;
}

std::vector<PageReading> PosixAgentHost::ReadPages() {
  std::vector<PageReading> pages;
  for (const auto& [worker, link] : links_) pages.push_back(ReadPage(worker, *link.page()));
  return pages;
}

PageReading PosixAgentHost::StoreStop(Incarnation worker, Step stop_at) {
  Link* link = Find(worker);
  if (link == nullptr) {
    PageReading nothing;
    nothing.worker = worker;
    return nothing;
  }
  link->page()->stop_at.store(stop_at.value, std::memory_order_seq_cst);
  return ReadPage(worker, *link->page());
}

void PosixAgentHost::SaveStacks(Incarnation worker, int32_t pid, const std::string& path) {
  if (writers_.count(worker) != 0) return;
  const std::string target = std::to_string(pid);
  const char* words[] = {"locum", "stacks", target.c_str(), path.c_str(), nullptr};
  Writer writer;
  const int error = ::posix_spawn(&writer.pid, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(words), environ);
  writer.end = OwnedFd(error != 0 ? -1 : PidfdOpen(writer.pid));
  if (!writer.end.valid()) {
    Log("stacks_not_saved", std::strerror(error != 0 ? error : errno));
    events_.push_back(StacksWritten{worker});
    return;
  }
  writer.watch = poll_.Add(writer.end.get(), EPOLLIN, [this, worker](uint32_t) {
    auto node = writers_.extract(worker);
    ::waitpid(node.mapped().pid, nullptr, WNOHANG);
    events_.push_back(StacksWritten{worker});
  });
  writers_.emplace(worker, std::move(writer));
}

uint64_t PosixAgentHost::FileBytes(const std::string& path) { return locum::FileBytes(path); }

void PosixAgentHost::Log(const std::string& name, const std::string& text) { AppendLogLine(2, "agent", name, text); }

}  // namespace locum
