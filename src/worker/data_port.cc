#include "worker/data_port.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "worker/threads.h"

namespace locum {

Status DataPort::Listen(const std::string& host) {
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return ErrnoStatus(errno, "eventfd");
  Result<TcpListener> listener = TcpListener::Listen({host, 0}, 1024);
  if (!listener.ok()) return listener.status().Annotate("data port");
  listener_ = std::move(*listener);
  return OkStatus();
}

Status DataPort::Start() {
  Result<std::thread> thread = StartThread("locum-port", [this] {
    try {
      Run();
    } catch (const std::bad_alloc&) {
      // Without memory for a peer's request this worker serves nobody; peers see closed connections.
      connections_.clear();
    }
  });
  if (!thread.ok()) return thread.status();
  thread_ = std::move(*thread);
  return OkStatus();
}

void DataPort::Poke() {
  const uint64_t one = 1;
  if (wake_ >= 0) [[maybe_unused]]
    ssize_t n = ::write(wake_, &one, sizeof one);
}

void DataPort::Stop() {
  stop_ = true;
  Poke();
  if (thread_.joinable()) thread_.join();
  connections_.clear();
  if (wake_ >= 0) ::close(wake_);
  wake_ = -1;
}

void DataPort::Run() {
  std::vector<pollfd> polled;
  std::vector<Id> ids;
  while (!stop_) {
    FollowGeneration();
    polled.assign({{wake_, POLLIN, 0}, {listener_.fd(), POLLIN, 0}});
    ids.clear();
    unknown_ = 0;
    Time nearest = kNever;
    for (auto& [id, c] : connections_) {
      polled.push_back({c.socket.fd(), static_cast<short>(c.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      ids.push_back(id);
      unknown_ += IsUnknown(c);
      nearest = std::min(nearest, c.deadline);
    }
    const bool deaf = connections_.size() >= kMaxConnections || TcpNow() < listen_again_;
    if (deaf) {
      polled[1].fd = -1;
      nearest = std::min(nearest, std::max(listen_again_, TcpNow() + kNoDescriptor));
    }
    int timeout = -1;
    if (nearest != kNever) {
      timeout = static_cast<int>(std::max<int64_t>(0, (nearest - TcpNow()).count() / 1'000'000 + 1));
    }
    if (::poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) return;
    uint64_t count;
    if (polled[0].revents) [[maybe_unused]]
      ssize_t n = ::read(wake_, &count, sizeof count);
    if (polled[1].revents) AcceptAll();
    const Time now = TcpNow();
    for (size_t i = 0; i < ids.size(); ++i) {
      // An answer to one client may have closed another.
      const auto found = connections_.find(ids[i]);
      if (found == connections_.end()) continue;
      Connection& c = found->second;
      bool keep = c.deadline > now;
      if (keep && polled[i + 2].revents & (POLLIN | POLLHUP | POLLERR)) keep = Read(ids[i], c);
      if (keep && !c.moved) keep = Flush(c);
      if (keep && !c.moved) continue;
      store_.Drop(ids[i]);
      connections_.erase(found);
    }
  }
}

void DataPort::AcceptAll() {
  for (size_t i = 0; i < kMaxAccepted && connections_.size() < kMaxConnections; ++i) {
    Result<TcpSocket> socket = listener_.Accept();
    if (!socket.ok()) {
      // No descriptor is free. Whoever has not said who it is goes first; polling on would only spin.
      if (unknown_ > 0) DropOldestUnknown();
      listen_again_ = TcpNow() + kNoDescriptor;
      return;
    }
    if (!socket->valid()) return;
    if (unknown_ >= kMaxUnknown) DropOldestUnknown();
    ++unknown_;
    Connection& c = connections_[next_id_++];
    c.socket = std::move(*socket);
    c.want = kRequestPrefixBytes;
    c.deadline = TcpNow() + kHandshake;
  }
}

void DataPort::DropOldestUnknown() {
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (!IsUnknown(it->second)) continue;
    connections_.erase(it);
    --unknown_;
    return;
  }
}

// When this worker leaves a generation, its store is over.
void DataPort::FollowGeneration() {
  const Generation now = store_generation_();
  if (now == store_.generation()) return;
  store_.Begin(now);
  for (auto& [id, c] : connections_) {
    if (c.stage < Stage::kStoreHead || c.stage == Stage::kClosing || c.generation == now) continue;
    if (c.stage == Stage::kStoreWaiting) Reply(c, StoreCode::kOver, "");
    c.stage = Stage::kClosing;
    c.deadline = TcpNow() + kHandshake;
  }
  for (auto it = connections_.begin(); it != connections_.end();) {
    it = Flush(it->second) ? std::next(it) : connections_.erase(it);
  }
}

bool DataPort::Read(Id id, Connection& c) {
  // A client that waits for an answer, or was refused, has nothing to say but that it is gone.
  if (c.stage == Stage::kStoreWaiting || c.stage == Stage::kClosing) {
    char byte;
    const ssize_t n = ::recv(c.socket.fd(), &byte, 1, MSG_DONTWAIT);
    return n < 0 && (errno == EAGAIN || errno == EINTR);
  }
  while (c.stage != Stage::kStoreWaiting && c.stage != Stage::kClosing && !c.moved) {
    if (c.in.size() < c.want) {
      // No more than what this stage needs: what follows a bulk request belongs to the server.
      const size_t have = c.in.size();
      c.in.resize(have + std::min<size_t>(c.want - have, 1u << 20));
      const ssize_t n = ::recv(c.socket.fd(), c.in.data() + have, c.in.size() - have, MSG_DONTWAIT);
      c.in.resize(have + static_cast<size_t>(n > 0 ? n : 0));
      if (n == 0) return false;
      if (n < 0) return errno == EAGAIN || errno == EINTR;
    }
    if (c.in.size() == c.want && !Advance(id, c)) return false;
  }
  return true;
}

bool DataPort::Advance(Id id, Connection& c) {
  switch (c.stage) {
    case Stage::kHead: {
      Result<uint32_t> bytes = DecodeRequestPrefix(c.in);
      if (!bytes.ok()) return false;  // not ours; it would not understand an answer
      c.in.clear();
      c.want = *bytes;
      c.stage = Stage::kBody;
      return true;
    }
    case Stage::kBody: return TakeRequest(c);
    case Stage::kStoreHead: {
      Result<StoreRequest> request = DecodeStoreRequest(c.in);
      if (!request.ok()) return false;
      c.request = *request;
      c.in.clear();
      c.want = static_cast<size_t>(request->key_bytes) + request->value_bytes;
      c.stage = Stage::kStoreBody;
      return true;
    }
    case Stage::kStoreBody: return TakeStoreRequest(id, c);
    case Stage::kStoreWaiting:
    case Stage::kClosing: break;
  }
  return false;
}

bool DataPort::TakeRequest(Connection& c) {
  Result<DataRequest> request = DecodeRequestBody(c.in);
  c.in.clear();
  DataAnswer answer;
  if (!request.ok()) {
    answer = {AnswerCode::kRefused, request.status().message()};
  } else if (!SameToken(request->token, identity_.token)) {
    answer = {AnswerCode::kRefused, "wrong token: this worker belongs to another cluster"};
  } else if (request->job != identity_.job) {
    answer = {AnswerCode::kRefused, "wrong job: this worker works for another one"};
  } else if (request->target != self_) {
    answer = {AnswerCode::kRefused,
              "wrong worker: " + ToHex(request->target.value) + " was meant, this is " + ToHex(self_.value)};
  } else if (request->kind == DataKind::kStore) {
    FollowGeneration();
    if (request->generation == store_.generation()) {
      c.generation = request->generation;
      c.stage = Stage::kStoreHead;
      c.want = kStoreRequestBytes;
      c.deadline = kNever;
      c.out += EncodeAnswer(answer);
      return true;
    }
    answer = {AnswerCode::kNotNow, "the store is that of generation " + std::to_string(store_.generation().value) +
                                       ", not of " + std::to_string(request->generation.value)};
  } else {
    c.moved = serve_(std::move(c.socket), *request);
    return c.moved;
  }
  c.out += EncodeAnswer(answer);
  c.stage = Stage::kClosing;
  return true;
}

bool DataPort::TakeStoreRequest(Id id, Connection& c) {
  const std::string key = c.in.substr(0, c.request.key_bytes);
  const std::string value = c.in.substr(c.request.key_bytes);
  c.in.clear();
  c.want = kStoreRequestBytes;
  c.stage = Stage::kStoreHead;
  if (c.request.operation == StoreOperation::kGet) {
    Result<const std::string*> found = store_.Get(key, id);
    if (!found.ok())
      Reply(c, StoreCode::kRefused, found.status().message());
    else if (*found)
      Reply(c, StoreCode::kOk, **found);
    else
      c.stage = Stage::kStoreWaiting;
    return true;
  }
  Result<std::vector<Id>> waiting = store_.Set(key, value);
  if (!waiting.ok()) {
    Reply(c, StoreCode::kRefused, waiting.status().message());
    return true;
  }
  Reply(c, StoreCode::kOk, "");
  for (const Id other : *waiting) {
    Connection& w = connections_.at(other);
    Reply(w, StoreCode::kOk, value);
    w.stage = Stage::kStoreHead;
    if (!Flush(w) && other != id) connections_.erase(other);
  }
  return true;
}

void DataPort::Reply(Connection& c, StoreCode code, const std::string& value) {
  c.out += EncodeStoreReply({code, static_cast<uint32_t>(value.size())});
  c.out += value;
}

// False: close, because of an error or because all was said.
bool DataPort::Flush(Connection& c) {
  while (!c.out.empty()) {
    const ssize_t n = ::send(c.socket.fd(), c.out.data(), c.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    c.out.erase(0, static_cast<size_t>(n));
  }
  return c.stage != Stage::kClosing;
}

}  // namespace locum
