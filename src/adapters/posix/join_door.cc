#include "adapters/posix/join_door.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "adapters/posix/monotonic.h"
#include "adapters/posix/pidfd.h"
#include "ports/worker_protocol.h"

namespace locum {
namespace {

constexpr size_t kMaxWaiting = 64;
constexpr size_t kMaxAccepted = 16;  // in one turn
constexpr size_t kMaxJoinMessage = 4096;
constexpr Duration kSpeakDeadline = std::chrono::seconds(5);
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, since Linux 6.5

// A pidfd of the process that connected. Without SO_PEERPIDFD the pid might be another's already when that process
// died just now; then the connection is closed too, and whoever writes to it learns so.
OwnedFd PeerProcess(int connection, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(connection, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) return OwnedFd(fd);
  return OwnedFd(PidfdOpen(pid));
}

}  // namespace

JoinDoor::JoinDoor(EventPoll* poll, std::function<void(JoinAsked)> asked)
    : poll_(poll), asked_(std::move(asked)), receiver_(kMaxJoinMessage) {}

JoinDoor::~JoinDoor() { Close(); }

Status JoinDoor::Open(const std::string& path) {
  ::unlink(path.c_str());
  Result<OwnedFd> listener = ListenSeqpacket(path, 128);
  if (!listener.ok()) return listener.status();
  path_ = path;
  listener_ = std::move(*listener);
  ::chmod(path.c_str(), 0600);
  watch_ = poll_->Add(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
  return OkStatus();
}

void JoinDoor::Close() {
  waiting_.clear();
  Shut();
}

void JoinDoor::Shut() {
  watch_.Reset();
  listener_.Reset();
  if (!path_.empty()) ::unlink(std::exchange(path_, "").c_str());
}

void JoinDoor::Accept() {
  // Not for ever while others come: the poll brings the rest, with what else has happened.
  for (size_t i = 0; i < kMaxAccepted; ++i) {
    Result<OwnedFd> connection = AcceptSeqpacket(listener_.get());
    if (!connection.ok() && !waiting_.empty()) waiting_.erase(waiting_.begin());  // no descriptor is free
    if (!connection.ok() || !connection->valid()) return;
    if (waiting_.size() >= kMaxWaiting) waiting_.erase(waiting_.begin());
    uint64_t id = next_id_++;
    Waiting& entry = waiting_[id];
    entry.caller.connection = std::move(*connection);
    entry.deadline = MonotonicNow() + kSpeakDeadline;
    entry.watch = poll_->Add(entry.caller.connection.get(), EPOLLIN, [this, id](uint32_t) { Hear(id); });
  }
}

void JoinDoor::Hear(uint64_t id) {
  Waiting& entry = waiting_.at(id);
  int fd = entry.caller.connection.get();
  Result<std::optional<Packet>> packet = receiver_.Receive(fd);
  if (packet.ok() && !packet->has_value()) return;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (!packet.ok() || ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    waiting_.erase(id);
    return;
  }
  std::string refusal;
  Result<JoinRequest> request = DecodeJoin((*packet)->bytes);
  entry.caller.process = PeerProcess(fd, peer.pid);
  if (!request.ok()) {
    refusal = request.status().message();
  } else if (peer.pid <= 0 || !entry.caller.process.valid()) {
    refusal = "this node cannot see the process that joins; it must run in the node's process namespace or below";
  }
  if (!refusal.empty()) {
    (void)SendPacket(fd, EncodeRefused(refusal));
    waiting_.erase(id);
    return;
  }
  entry.watch.Reset();  // what it says from now on is for the agent to read
  asked_(JoinAsked{id, peer.pid, request->protocol, request->worker, request->library});
}

JoinDoor::Caller JoinDoor::Take(uint64_t connection) {
  auto it = waiting_.find(connection);
  if (it == waiting_.end()) return {};
  Caller caller = std::move(it->second.caller);
  waiting_.erase(it);
  return caller;
}

Time JoinDoor::Sweep(Time now) {
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second.deadline <= now; });
  Time next = kNever;
  for (const auto& [id, entry] : waiting_) next = std::min(next, entry.deadline);
  return next;
}

}  // namespace locum
