// A worker's data port: one thread accepts, checks who asks (token, job, incarnation), answers the store, and
// hands bulk requests to the StateServer. Nothing in it blocks.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "adapters/tcp/tcp_socket.h"
#include "worker/puller.h"
#include "worker/state_server.h"
#include "worker/store_table.h"

namespace locum {

class DataPort {
 public:
  DataPort(DataIdentity identity, Incarnation self, std::function<Generation()> store_generation,
           std::function<bool(TcpSocket, const DataRequest&)> serve)
      : identity_(std::move(identity)),
        self_(self),
        store_generation_(std::move(store_generation)),
        serve_(std::move(serve)) {}
  ~DataPort() { Stop(); }

  // Listens at `host`, a port of the kernel's choice.
  Status Listen(const std::string& host);
  Status Start();
  // The store's generation may have changed. Any thread; does not block.
  void Poke();
  void Stop();
  std::string address() const { return FormatAddress(listener_.address()); }
  int listener_fd() const { return listener_.fd(); }

 private:
  enum class Stage { kHead, kBody, kStoreHead, kStoreBody, kStoreWaiting, kClosing };
  struct Connection {
    TcpSocket socket;
    Stage stage = Stage::kHead;
    Time deadline;    // of the handshake; kNever behind it
    size_t want = 0;  // bytes to read before the stage goes on
    std::string in, out;
    Generation generation;
    StoreRequest request;
    bool moved = false;  // handed to the server
  };
  using Id = StoreTable::Client;
  static bool IsUnknown(const Connection& c) { return c.stage == Stage::kHead || c.stage == Stage::kBody; }

  void Run();
  void AcceptAll();
  void DropOldestUnknown();
  bool Read(Id id, Connection& c);  // false: close
  bool Advance(Id id, Connection& c);
  bool TakeRequest(Connection& c);
  bool TakeStoreRequest(Id id, Connection& c);
  bool Flush(Connection& c);
  void Reply(Connection& c, StoreCode code, const std::string& value);
  void FollowGeneration();

  static constexpr size_t kMaxConnections = 4096;
  // That have not said who they are. A descriptor each, of a process that has other uses for its own: one more turns
  // the oldest away, as peers need milliseconds and a flood has time.
  static constexpr size_t kMaxUnknown = 128;
  static constexpr size_t kMaxAccepted = 32;  // in one turn: each is read at least once before it is the oldest
  static constexpr Duration kNoDescriptor = std::chrono::milliseconds(100);  // until accepting is tried again
  static constexpr Duration kHandshake = std::chrono::seconds(5);

  const DataIdentity identity_;
  const Incarnation self_;
  const std::function<Generation()> store_generation_;
  const std::function<bool(TcpSocket, const DataRequest&)> serve_;
  TcpListener listener_;
  int wake_ = -1;
  std::atomic<bool> stop_{false};
  std::map<Id, Connection> connections_;
  Id next_id_ = 1;
  Time listen_again_{};
  size_t unknown_ = 0;  // connections_ in the stages kHead and kBody, recounted in each turn
  StoreTable store_;
  std::thread thread_;
};

}  // namespace locum
