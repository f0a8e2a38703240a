#include "worker/node_link.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "adapters/posix/monotonic.h"
#include "ports/page.h"
#include "worker/threads.h"

namespace locum {

Result<Joined> JoinNode(const std::string& path, Incarnation worker, Duration timeout) {
  const Time deadline = MonotonicNow() + timeout;
  const std::string where = "the node's socket " + path;
  Joined joined;
  Result<OwnedFd> socket = ConnectSeqpacket(path, deadline);
  if (!socket.ok()) {
    return socket.status().Annotate("cannot reach " + where + "; is the node's keeper running?");
  }
  joined.socket = std::move(*socket);
  const int fd = joined.socket.get();
  Result<bool> sent = SendPacket(fd, EncodeJoin({kProtocolVersion, worker, kVersion}));
  if (!sent.ok()) return sent.status().Annotate(where);
  PacketReceiver receiver(kMaxWorkerMessage);
  std::optional<Packet> packet;
  while (!packet) {
    const Status waited = WaitPacket(fd, deadline);
    if (!waited.ok())
      return Unavailable(where + " did not answer within " + std::to_string(timeout.count() / 1'000'000) + " ms");
    Result<std::optional<Packet>> received = receiver.Receive(fd);
    if (!received.ok()) return received.status().Annotate(where);
    packet = std::move(*received);
  }
  Result<WorkerMessage> type = TypeOf(packet->bytes);
  if (!type.ok()) return type.status().Annotate(where);
  if (*type == WorkerMessage::kRefused) {
    Result<std::string> why = DecodeRefused(packet->bytes);
    return why.ok() ? Refused("the node refused this worker: " + *why) : why.status();
  }
  Result<WorkerWelcome> welcome = DecodeWelcome(packet->bytes);
  if (!welcome.ok()) return welcome.status().Annotate(where);
  if (packet->descriptors.size() != 1) return Invalid(where + " sent no shared page with its welcome");
  LOCUM_RETURN_IF_ERROR(CheckSharedMemory(packet->descriptors[0].get(), kPageBytes).Annotate(where));
  Result<Mapping> page = Mapping::Shared(packet->descriptors[0].get(), 0, kPageBytes);
  if (!page.ok()) return page.status();
  if (reinterpret_cast<Page*>(page->data())->magic.load() != kPageMagic) {
    return Invalid(where + " sent a page of another version; run the same Locum everywhere");
  }
  joined.page = std::move(*page);
  joined.welcome = std::move(*welcome);
  return joined;
}

Status NodeLink::Start() {
  Result<std::thread> thread = StartThread("locum-control", [this] {
    try {
      Run();
    } catch (const std::bad_alloc&) {
      protocol_.NodeGone(Internal("out of memory"));
    }
  });
  if (!thread.ok()) return thread.status();
  thread_ = std::move(*thread);
  return OkStatus();
}

void NodeLink::Stop() {
  stop_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(wake_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void NodeLink::Run() {
  while (!stop_) {
    const bool soon = protocol_.Reconcile();
    Status status = SendDue();
    if (!status.ok()) return protocol_.NodeGone(status);
    pollfd polled[2] = {{socket_, static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0},
                        {wake_, POLLIN, 0}};
    std::optional<Duration> again = housekeeping_();
    if (soon) again = std::min(again.value_or(kUpdatePoll), kUpdatePoll);
    const int64_t ns = again.value_or(Duration::zero()).count();
    const timespec wait{ns / 1'000'000'000, ns % 1'000'000'000};
    if (::ppoll(polled, 2, again ? &wait : nullptr, nullptr) < 0 && errno != EINTR) {
      return protocol_.NodeGone(ErrnoStatus(errno, "ppoll"));
    }
    uint64_t count;
    if (polled[1].revents) [[maybe_unused]]
      ssize_t n = ::read(wake_, &count, sizeof count);
    if (polled[0].revents & (POLLIN | POLLHUP | POLLERR)) status = TakePackets();
    if (!status.ok()) return protocol_.NodeGone(status);
  }
}

Status NodeLink::TakePackets() {
  while (true) {
    Result<std::optional<Packet>> packet = receiver_.Receive(socket_);
    if (!packet.ok()) return packet.status();
    if (!*packet) return OkStatus();
    LOCUM_RETURN_IF_ERROR(Take(**packet));
  }
}

Status NodeLink::Take(const Packet& packet) {
  Result<WorkerMessage> type = TypeOf(packet.bytes);
  if (!type.ok()) return type.status();
  switch (*type) {
    case WorkerMessage::kOrder: {
      Result<WorkerOrder> order = DecodeOrder(packet.bytes);
      if (!order.ok()) return order.status();
      protocol_.TakeOrder(*order);
      return OkStatus();
    }
    case WorkerMessage::kAbort: {
      Result<Generation> generation = DecodeAbort(packet.bytes);
      if (!generation.ok()) return generation.status();
      protocol_.TakeAbort(*generation);
      return OkStatus();
    }
    case WorkerMessage::kResend:
      ready_sent_ = false;
      resend_ = true;
      return OkStatus();
    default: return Invalid("the node sent a message that only a worker sends");
  }
}

Status NodeLink::SendDue() {
  if (!protocol_.ready()) return OkStatus();
  if (!ready_sent_) {
    Result<bool> sent = SendPacket(socket_, ready_packet_);
    if (!sent.ok()) return sent.status();
    if (!*sent) {
      unsent_ = ready_packet_;  // only so that POLLOUT is waited for
      return OkStatus();
    }
    ready_sent_ = true;
  }
  const bool pending = !unsent_.empty();
  unsent_.clear();
  std::optional<WorkerState> report = protocol_.TakeReport(resend_ || pending);
  resend_ = false;
  if (!report) return OkStatus();
  const std::string packet = EncodeState(*report);
  Result<bool> sent = SendPacket(socket_, packet);
  if (!sent.ok()) return sent.status();
  if (*sent)
    protocol_.ReportSent();
  else
    unsent_ = packet;
  return OkStatus();
}

}  // namespace locum
