#include "mesh.h"

#include <gloo/transport/address.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gpt {
namespace {

std::string Key(int rank) { return "gloo/" + std::to_string(rank); }

std::shared_ptr<gloo::transport::Context> CreateTransport(gloo::transport::Device& device, int rank, int size,
                                                          std::chrono::milliseconds timeout) {
  auto transport = device.createContext(rank, size);
  transport->setTimeout(timeout);
  return transport;
}

}  // namespace

class BreakableTransport::Buffer final : public gloo::transport::UnboundBuffer {
 public:
  Buffer(BreakableTransport* transport, void* data, size_t bytes)
      : UnboundBuffer(data, bytes), transport_(transport), inner_(transport->inner_->createUnboundBuffer(data, bytes)) {
    std::lock_guard<std::mutex> lock(transport_->mutex_);
    if (transport_->broken_) throw std::runtime_error("broken off");
    transport_->buffers_.insert(this);
  }
  ~Buffer() override {
    std::lock_guard<std::mutex> lock(transport_->mutex_);
    transport_->buffers_.erase(this);
  }

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    return Check(inner_->waitRecv(rank, timeout));
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    return Check(inner_->waitSend(rank, timeout));
  }
  // Either ends the wait that runs, or the next one.
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int to, uint64_t slot, size_t offset, size_t bytes) override { inner_->send(to, slot, offset, bytes); }
  void recv(int from, uint64_t slot, size_t offset, size_t bytes) override { inner_->recv(from, slot, offset, bytes); }
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) override {
    inner_->recv(std::move(from), slot, offset, bytes);
  }

 private:
  // Gloo's algorithms take no notice of a wait that was broken off, and would go on with what is in the buffer.
  static bool Check(bool completed) {
    if (!completed) throw std::runtime_error("broken off");
    return true;
  }

  BreakableTransport* const transport_;
  const std::unique_ptr<gloo::transport::UnboundBuffer> inner_;
};

BreakableTransport::BreakableTransport(std::shared_ptr<gloo::transport::Context> inner)
    : Context(inner->rank, inner->size), inner_(std::move(inner)) {
  setTimeout(inner_->getTimeout());
}

std::unique_ptr<gloo::transport::UnboundBuffer> BreakableTransport::createUnboundBuffer(void* data, size_t bytes) {
  return std::make_unique<Buffer>(this, data, bytes);
}

void BreakableTransport::Break() {
  std::lock_guard<std::mutex> lock(mutex_);
  broken_ = true;
  for (Buffer* buffer : buffers_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

Mesh::Mesh(int own_rank, int world, std::shared_ptr<gloo::transport::Device> device, std::chrono::milliseconds timeout)
    : Context(own_rank, world),
      breakable_(std::make_shared<BreakableTransport>(CreateTransport(*device, own_rank, world, timeout))) {
  Context::setTimeout(timeout);
  device_ = std::move(device);
  transportContext_ = breakable_;
}

// A rank puts one value into the store, the addresses it listens on, one for each peer, and reads one of each peer: as
// few round trips as there can be.
void Mesh::Connect(gloo::rendezvous::Store& store) {
  std::vector<char> addresses;
  size_t each = 0;
  for (int peer = 0; peer < size; peer++) {
    if (peer == rank) continue;
    const std::vector<char> bytes = breakable_->createPair(peer)->address().bytes();
    each = bytes.size();
    addresses.insert(addresses.end(), bytes.begin(), bytes.end());
  }
  store.set(Key(rank), addresses);
  for (int peer = 0; peer < size; peer++) {
    if (peer == rank) continue;
    const std::vector<char> theirs = store.get(Key(peer));
    if (theirs.size() != addresses.size()) {
      throw std::runtime_error("rank " + std::to_string(peer) + " published " + std::to_string(theirs.size()) +
                               " bytes of addresses instead of " + std::to_string(addresses.size()));
    }
    const auto mine = theirs.begin() + static_cast<std::ptrdiff_t>(each * (rank < peer ? rank : rank - 1));
    breakable_->getPair(peer)->connect({mine, mine + static_cast<std::ptrdiff_t>(each)});
  }
}

}  // namespace gpt
