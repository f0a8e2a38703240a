// The coordinator's port. It moves messages and decides nothing: events go to `Handlers::post`, what the core answers
// comes back through the Send functions, from the core's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "adapters/grpc/agent_stream.h"
#include "base/status.h"

namespace locum {

inline constexpr size_t kMaxStreams = 4096;
inline constexpr size_t kMaxRequests = 64;  // waiting for the core's answer at a time

struct ServerOptions {
  std::string host;         // numeric address to listen on
  uint16_t port = 0;        // 0: any
  std::string token;        // never empty
  std::string events_path;  // events.jsonl, for the Events call
};

struct ServerHandlers {
  PostEvent post;
  // Calls back once with the present view, or with null when the coordinator is closing. False: too many wait.
  std::function<bool(std::function<void(const ClusterView*)>)> view;
};

class GrpcServer {
 public:
  // kInvalid when the address cannot be bound (in use, not of this machine).
  static Result<std::unique_ptr<GrpcServer>> Start(const ServerOptions& options, ServerHandlers handlers);
  ~GrpcServer();

  uint16_t port() const;
  // Any thread; a stream that is gone is ignored.
  void SendWelcome(StreamId stream, const Welcome& welcome);
  void SendOrder(StreamId stream, const NodeOrder& order);
  void Refuse(StreamId stream, const std::string& reason, bool end);
  void Answer(uint64_t request, const Status& status);
  // Ends every stream after what is queued for it was written, for at most `drain`. Handlers are called no more
  // once it has returned.
  void Shutdown(Duration drain);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace locum
