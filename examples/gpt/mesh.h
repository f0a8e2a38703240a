// A Gloo context in which every rank is connected with every other, and whose waiting can be broken off.
//
// Closing a connection does not wake a thread of this process that waits for it in Gloo; only the other end learns of
// it. So the buffers that Gloo's algorithms make are wrapped here: each can be told to stop waiting.
#pragma once

#include <gloo/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>

namespace gpt {

class BreakableTransport final : public gloo::transport::Context {
 public:
  explicit BreakableTransport(std::shared_ptr<gloo::transport::Context> inner);

  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return inner_->getPair(peer); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return inner_->createPair(peer); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, size_t bytes) override;

  // Any thread. Whoever waits for a buffer of this transport, now or later, gets an exception.
  void Break();

 private:
  class Buffer;

  const std::shared_ptr<gloo::transport::Context> inner_;
  std::mutex mutex_;  // guards what follows
  bool broken_ = false;
  std::set<Buffer*> buffers_;
};

class Mesh final : public gloo::Context {
 public:
  Mesh(int own_rank, int world, std::shared_ptr<gloo::transport::Device> device, std::chrono::milliseconds timeout);

  // Blocks until this rank's connections are there. `store.get` waits for its key.
  void Connect(gloo::rendezvous::Store& store);

  // Any thread, any moment.
  void Break() { breakable_->Break(); }

 private:
  const std::shared_ptr<BreakableTransport> breakable_;
};

}  // namespace gpt
