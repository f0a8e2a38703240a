// Threads that serve bulk requests of other workers: state (pull) and echoes. Bounded in number; what does not
// fit the queue is turned away, and its asker tries another source.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "adapters/tcp/tcp_socket.h"
#include "worker/protocol.h"

namespace locum {

class StateServer {
 public:
  StateServer(Protocol* protocol, const RegisteredState* state) : protocol_(*protocol), state_(*state) {}
  ~StateServer() { Stop(); }

  Status Start();
  // Takes the connection behind a valid request. False: too many wait.
  bool Serve(TcpSocket socket, const DataRequest& request);
  void Stop();

 private:
  struct Job {
    TcpSocket socket;
    DataRequest request;
  };
  void Run();
  void ServePull(Job& job);
  void ServeEcho(Job& job);

  static constexpr int kThreads = 4;
  static constexpr size_t kMaxQueue = 64;

  Protocol& protocol_;
  const RegisteredState& state_;
  Cancel stop_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace locum
