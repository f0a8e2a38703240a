// The thread that makes this worker's state the one of the recovery step, or proves that it is; and that
// answers echo orders. One task at a time, each ends promptly when it is cancelled.
#pragma once

#include "worker/protocol.h"
#include "worker/puller.h"

namespace locum {

class Mover {
 public:
  Mover(Protocol* protocol, const RegisteredState* state, DataIdentity identity, Incarnation self)
      : protocol_(*protocol), state_(*state), identity_(std::move(identity)), self_(self) {}

  // Until Protocol::Leave.
  void Run();

 private:
  void Recover(const MoverTask& task);
  Result<Verified> HashOwn(const MoverTask& task);
  Result<Verified> PullInPlace(const MoverTask& task);
  Result<Verified> PullStaged(const MoverTask& task);
  Result<PullOutcome> PullInto(const MoverTask& task, std::function<uint8_t*(const Chunk&)> destination,
                               std::function<Status(const Chunk&, const uint8_t*)> arrived);
  Verified Pulled(const MoverTask& task, const PullOutcome& outcome, Time begin) const;
  void DoEcho(const MoverTask& task);
  Status ExchangeEcho(const MoverTask& task);

  Protocol& protocol_;
  const RegisteredState& state_;
  const DataIdentity identity_;
  const Incarnation self_;
};

inline constexpr uint64_t kEchoBytes = 8u << 20;
inline constexpr Duration kEchoPatience = std::chrono::seconds(10);
inline constexpr Duration kEchoOpenPatience = std::chrono::seconds(3);  // to be connected and answered at all

}  // namespace locum
