#include "group.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace {

constexpr int kTickMs = 20;           // how often a wait looks whether it was aborted
constexpr int kPatienceTicks = 3000;  // 60 s

// Exactly `bytes` in or out by `io`; false when the connection breaks or `aborted` is set.
template <class Io>
bool Move(int fd, char* data, size_t bytes, short events, const std::atomic<bool>& aborted, Io io) {
  for (int ticks = 0; bytes > 0;) {
    if (aborted) return false;
    const ssize_t n = io(data, bytes);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (n > 0) {
      data += n;
      bytes -= static_cast<size_t>(n);
      ticks = 0;
      continue;
    }
    pollfd wait{fd, events, 0};
    if (poll(&wait, 1, kTickMs) == 0 && ++ticks > kPatienceTicks) return false;
  }
  return true;
}

bool ToAddress(const std::string& host, int port, sockaddr_storage* out, socklen_t* size) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
    std::memcpy(out, &v4, *size = sizeof v4);
    return true;
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(port));
    std::memcpy(out, &v6, *size = sizeof v6);
    return true;
  }
  return false;
}

}  // namespace

bool Group::Send(int fd, const void* data, size_t bytes) {
  const int flags = MSG_NOSIGNAL | (patient_ ? 0 : MSG_DONTWAIT);
  return Move(fd, static_cast<char*>(const_cast<void*>(data)), bytes, POLLOUT, aborted_,
              [&](char* at, size_t n) { return send(fd, at, n, flags); });
}

bool Group::Receive(int fd, void* data, size_t bytes) {
  const int flags = patient_ ? 0 : MSG_DONTWAIT;
  return Move(fd, static_cast<char*>(data), bytes, POLLIN, aborted_,
              [&](char* at, size_t n) { return recv(fd, at, n, flags); });
}

void Group::Close() {
  for (int fd : sockets_) {
    if (fd < 0) continue;
    shutdown(fd, SHUT_RDWR);
    close(fd);
  }
  sockets_.clear();
}

void Group::Abort() { aborted_ = true; }

bool Group::Connect(locum::Job& job, const locum::TrainStep& step) {
  using std::chrono::seconds;
  Close();
  aborted_ = false;
  root_ = step.rank == 0;
  if (step.world_size == 1) return true;
  const int one = 1;
  // The first message of each connection: who I am, and what I am about to train on.
  const std::array<uint64_t, 4> mine = {step.rank, step.generation, step.step, step.state_hash};
  if (step.rank == 0) {
    int listener = -1;
    std::string port;
    const bool listening = Listen(job.Address(), &listener, &port) && job.StoreSet("rank0", port);
    sockets_.assign(step.world_size - 1, -1);
    for (uint32_t missing = step.world_size - 1; listening && missing > 0 && !aborted_;) {
      pollfd wait{listener, POLLIN, 0};
      if (poll(&wait, 1, kTickMs) <= 0) {
        if (!job.StoreSet("waiting", "")) break;  // the generation is over
        continue;
      }
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      std::array<uint64_t, 4> theirs{};
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      const bool told = Receive(fd, theirs.data(), sizeof theirs);
      const uint64_t rank = theirs[0];
      const bool same = std::equal(theirs.begin() + 1, theirs.end(), mine.begin() + 1);
      if (told && same && rank >= 1 && rank < step.world_size && sockets_[rank - 1] < 0) {
        sockets_[rank - 1] = fd;
        --missing;
      } else {
        close(fd);
      }
    }
    if (listener >= 0) close(listener);
    for (int fd : sockets_) {
      if (fd < 0) return false;
    }
    return true;
  }
  const std::optional<std::string> where = job.StoreGet("rank0", seconds(60));
  if (!where) return false;
  const size_t space = where->find(' ');
  sockaddr_storage address{};
  socklen_t size = 0;
  if (!ToAddress(where->substr(0, space), std::stoi(where->substr(space + 1)), &address, &size)) return false;
  sockets_.push_back(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  setsockopt(sockets_[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return connect(sockets_[0], reinterpret_cast<sockaddr*>(&address), size) == 0 &&
         Send(sockets_[0], mine.data(), sizeof mine);
}

bool Group::Listen(const std::string& host, int* listener, std::string* address) {
  sockaddr_storage raw{};
  socklen_t size = 0;
  if (!ToAddress(host, 0, &raw, &size)) return false;
  *listener = socket(raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (bind(*listener, reinterpret_cast<sockaddr*>(&raw), size) != 0 || listen(*listener, 64) != 0) return false;
  getsockname(*listener, reinterpret_cast<sockaddr*>(&raw), &size);
  // The port is at the same place in both families.
  *address = host + " " + std::to_string(ntohs(reinterpret_cast<sockaddr_in*>(&raw)->sin_port));
  return true;
}

bool Group::AllReduce(std::vector<double>& values, const std::function<void()>& inside) {
  if (aborted_) return false;
  const size_t bytes = values.size() * sizeof(double);
  if (!root_) {
    if (!Send(sockets_[0], values.data(), bytes)) return false;
    inside();
    return Receive(sockets_[0], values.data(), bytes);
  }
  std::vector<double> other(values.size());
  for (int fd : sockets_) {
    if (!Receive(fd, other.data(), bytes)) return false;
    for (size_t i = 0; i < values.size(); ++i) values[i] += other[i];
  }
  for (size_t i = 0; i < sockets_.size(); ++i) {
    if (i + 1 == sockets_.size()) inside();
    if (!Send(sockets_[i], values.data(), bytes)) return false;
  }
  return true;
}
