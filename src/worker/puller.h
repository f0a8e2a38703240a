// Fetches state from other workers: chunk by chunk in order, each verified as it arrives. When a source fails,
// the next one takes over at the chunk that is missing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "adapters/tcp/cancel.h"
#include "adapters/tcp/tcp_socket.h"
#include "base/cluster.h"
#include "base/status.h"
#include "state/layout.h"
#include "state/transfer.h"
#include "worker/registered_state.h"

namespace locum {

// What every connection to a data port carries.
struct DataIdentity {
  std::string token;
  std::string job;
};

struct PullLimits {
  Duration connect = std::chrono::seconds(2);
  Duration stall = std::chrono::seconds(5);   // for one chunk to arrive
  Duration pause = std::chrono::milliseconds(50);  // before the sources are tried again
  int rounds = 3;                             // through all sources
};

struct PullPlan {
  DataIdentity identity;
  Generation generation;
  Step step;
  uint64_t layout_hash = 0;
  const Layout* layout = nullptr;
  std::function<std::vector<Peer>()> sources;              // in the order to try, as known now
  std::function<uint8_t*(const Chunk&)> destination;       // room for the chunk
  std::function<Status(const Chunk&, const uint8_t*)> arrived;  // verified, at `destination`
  PullLimits limits;
};

struct PullOutcome {
  std::shared_ptr<ChunkHashes> hashes;
  uint32_t retries = 0;
  Incarnation source;
};

// kInterrupted by `cancel`; kUnavailable when every source failed, the text names each one's reason.
Result<PullOutcome> Pull(const PullPlan& plan, const Cancel& cancel);

// Connects to a data port and makes the request; the peer has agreed when this is ok. kRefused and kUnavailable
// carry the peer's text.
Result<TcpSocket> OpenData(const Peer& peer, DataRequest request, const DataIdentity& identity, Time deadline,
                           const Cancel* cancel);

}  // namespace locum
