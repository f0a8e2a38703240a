// Messages between a worker and its node, over a Unix SOCK_SEQPACKET socket: one message a packet.
//
// A worker finds the socket through two environment variables that the keeper sets:
//   LOCUM_SOCKET  path of the keeper's listening socket
//   LOCUM_WORKER  the worker's incarnation, 16 hexadecimal digits; it is also what admits the worker
// It connects, sends Join, and gets Welcome (with one file descriptor: the shared page) or Refused. From then
// on the peer is the agent, or for moments nobody; the socket stays. Every later message is a whole state.
//
//   byte 0      message type
//   byte 1..    fields, little-endian, see worker_protocol.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cluster.h"
#include "base/status.h"

namespace locum {

// A packet holds at most this much, and at most what net.core.wmem_max lets a socket send: with the usual 212,992 about
// 400 KiB, which is a Ready message of several thousand shards. Beyond, sending is an error that says what to raise.
inline constexpr size_t kMaxWorkerMessage = 4u << 20;

inline constexpr const char* kSocketVariable = "LOCUM_SOCKET";
inline constexpr const char* kWorkerVariable = "LOCUM_WORKER";
inline constexpr const char* kNodeVariable = "LOCUM_NODE";             // informative: the node's name
inline constexpr const char* kLocalRankVariable = "LOCUM_LOCAL_RANK";  // informative: the slot

// What a worker needs to know and does not change while it lives.
struct WorkerWelcome {
  std::string job;
  std::string node;
  Slot slot;
  Incarnation worker;
  std::string token;
  std::string address;   // interface address to listen on and to advertise
  std::string step_log;  // path to create it at
  uint64_t seed = 0;
  uint32_t workers_per_node = 1;
};

enum class WorkerMessage : uint8_t {
  // worker to node
  kJoin = 1,   // protocol version, incarnation, library version
  kReady = 2,  // JoinInfo
  kState = 3,  // WorkerState (the page's fields as the worker sees them)
  // node to worker
  kWelcome = 16,  // WorkerWelcome, with the page
  kRefused = 17,  // text: what is wrong, what to do
  kOrder = 18,    // WorkerOrder
  kAbort = 19,    // generation: break the collective of this generation by the program's abort call
  kResend = 20,   // a new agent is here: send Ready (if ready) and State again
};

struct JoinRequest {
  uint32_t protocol = 0;
  Incarnation worker;
  std::string library;
};

std::string EncodeJoin(const JoinRequest&);
std::string EncodeReady(const JoinInfo&);
std::string EncodeState(const WorkerState&);
std::string EncodeWelcome(const WorkerWelcome&);
std::string EncodeRefused(const std::string& text);
std::string EncodeOrder(const WorkerOrder&);
std::string EncodeAbort(Generation generation);
std::string EncodeResend();

// The type of a packet; kInvalid for an empty packet or an unknown type.
Result<WorkerMessage> TypeOf(std::string_view packet);
// Each decodes a whole packet of its type, and rejects one that is short, too long, or has a value out of range.
Result<JoinRequest> DecodeJoin(std::string_view packet);
Result<JoinInfo> DecodeReady(std::string_view packet);
Result<WorkerState> DecodeState(std::string_view packet);
Result<WorkerWelcome> DecodeWelcome(std::string_view packet);
Result<std::string> DecodeRefused(std::string_view packet);
Result<WorkerOrder> DecodeOrder(std::string_view packet);
Result<Generation> DecodeAbort(std::string_view packet);

}  // namespace locum
