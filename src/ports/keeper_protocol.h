// Messages between an agent and its keeper, over a Unix SOCK_SEQPACKET pair that the keeper makes before it
// starts the agent. The agent orders, the keeper tells; the keeper decides nothing but to keep one agent
// running. When an agent is new, the keeper first tells Hello, then every worker it holds.
//
//   byte 0      message type
//   byte 1..    fields, little-endian, see keeper_protocol.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cluster.h"
#include "base/status.h"
#include "base/supervision.h"
#include "ports/worker_protocol.h"

namespace locum {

inline constexpr size_t kMaxKeeperMessage = 1u << 20;

enum class KeeperMessage : uint8_t {
  // agent to keeper
  kStart = 1,
  kStop = 2,      // SIGTERM, grace, SIGKILL; then everything below it
  kForget = 3,    // drop the record of an ended worker
  kShutdown = 4,  // stop all workers with the given grace, then the agent, then the keeper
  kRemember = 5,  // give these notes to the next agent
  // keeper to agent
  kHello = 16,
  kWorker = 17,  // WorkerRecord; with the connection and the page as descriptors while `joined`
};

struct StartWorker {
  Slot slot;
  Incarnation worker;
  std::vector<std::string> command;
  std::string log;   // created or appended to; both outputs of the worker
  Duration grace{};  // between SIGTERM and SIGKILL where the keeper stops it by itself
  WorkerWelcome welcome;
};

std::string EncodeStart(const StartWorker&);
std::string EncodeStop(const StopWorker&);
std::string EncodeForget(Incarnation worker);
std::string EncodeShutdown(const ShutdownNode&);
std::string EncodeRemember(const std::string& notes);
std::string EncodeKeeperHello(const KeeperHello&);
std::string EncodeWorker(const WorkerRecord&);

Result<KeeperMessage> KeeperTypeOf(std::string_view packet);
Result<StartWorker> DecodeStart(std::string_view packet);
Result<StopWorker> DecodeStop(std::string_view packet);
Result<Incarnation> DecodeForget(std::string_view packet);
Result<ShutdownNode> DecodeShutdown(std::string_view packet);
Result<std::string> DecodeRemember(std::string_view packet);
Result<KeeperHello> DecodeKeeperHello(std::string_view packet);
Result<WorkerRecord> DecodeWorker(std::string_view packet);

}  // namespace locum
