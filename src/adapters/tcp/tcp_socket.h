// TCP with deadlines. Every operation ends by success, an error, its deadline (kTimeout), or a Cancel
// (kInterrupted). Descriptors are close-on-exec and non-blocking; SIGPIPE is never raised.
//
// Closing shuts the connection down first: a child that was forked without exec may hold a copy of the
// descriptor, and the peer must see the end all the same.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "adapters/tcp/address.h"
#include "adapters/tcp/cancel.h"
#include "base/ids.h"
#include "base/status.h"

namespace locum {

// CLOCK_MONOTONIC, as everywhere.
Time TcpNow();

class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(int fd) : fd_(fd) {}
  ~TcpSocket() { Close(); }
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  // `cancel` may be null in all of these.
  static Result<TcpSocket> Connect(const HostPort& peer, Time deadline, const Cancel* cancel);

  bool valid() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void Close();

  // All of `head`, then all of `data`. `more`: another Send follows at once, so a partly filled packet may wait.
  Status Send(const void* head, size_t head_bytes, const void* data, size_t bytes, bool more, Time deadline,
              const Cancel* cancel);
  Status Send(const std::string& data, Time deadline, const Cancel* cancel) {
    return Send(data.data(), data.size(), nullptr, 0, false, deadline, cancel);
  }
  // Exactly `bytes`; a connection that ends earlier is kUnavailable.
  Status Receive(void* data, size_t bytes, Time deadline, const Cancel* cancel);
  // Waits for the next byte, or the end of the connection.
  Status WaitReadable(Time deadline, const Cancel* cancel);

 private:
  int fd_ = -1;
};

class TcpListener {
 public:
  TcpListener() = default;
  ~TcpListener();
  TcpListener(TcpListener&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), address_(std::move(other.address_)) {}
  TcpListener& operator=(TcpListener&& other) noexcept;

  // Port 0 lets the kernel choose; address() has the choice.
  static Result<TcpListener> Listen(const HostPort& address, int backlog);
  // An invalid socket when nobody waits to be accepted.
  Result<TcpSocket> Accept();

  int fd() const { return fd_; }
  const HostPort& address() const { return address_; }

 private:
  int fd_ = -1;
  HostPort address_;
};

}  // namespace locum
