// Reading values that a peer sent: each is checked against its range, the first that is out of range is remembered
// with the path of its field, and what was read is thrown away then.
#pragma once

#include <string>
#include <string_view>

#include "base/cluster.h"
#include "base/status.h"

namespace locum {

inline constexpr size_t kMaxName = 128;        // of a node, a shard, a group
inline constexpr size_t kMaxText = 64u << 10;  // reasons, paths, log tails
inline constexpr int kMaxWorkersPerNode = 1024;
inline constexpr int kMaxPeers = static_cast<int>(kMaxWorld);
inline constexpr int kMaxShards = 80000;
inline constexpr int kMaxCommandWords = 65536;
inline constexpr int kMaxAlarms = 4 * kMaxNodes;

// A node's name goes into paths and history: letters, digits, '.', '_', '-', not beginning with '.' or '-'.
bool IsNodeName(std::string_view name);

class WireCheck {
 public:
  bool ok() const { return error_.empty(); }
  // What is wrong, as "field: reason".
  Status status() const { return ok() ? OkStatus() : Invalid(error_); }
  void Fail(const char* field, const std::string& why) {
    if (error_.empty()) error_ = std::string(field) + ": " + why;
  }

  Term TermOf(uint64_t v, const char* field);
  Generation Gen(uint64_t v, const char* field);
  Step StepOf(uint64_t v, const char* field);
  Slot SlotOf(uint32_t v, const char* field);
  Rank RankOf(bool has, uint32_t v, const char* field);
  int32_t Pid(int32_t v, const char* field);
  int64_t NotNegative(int64_t v, const char* field);
  Duration DurationOf(int64_t v, const char* field) { return Duration(NotNegative(v, field)); }
  Duration TimeoutOf(int64_t v, const char* field);  // what a deadline can be made of
  WorkerExit ExitOf(int32_t status, int32_t signal);
  uint32_t AtMost(uint32_t v, uint32_t limit, const char* field);
  std::string Text(const std::string& v, const char* field, size_t limit = kMaxText);
  std::string NodeName(const std::string& v, const char* field, bool may_be_empty = false);
  // True when a list may be read.
  bool Count(int n, int limit, const char* field);

  template <class E, class W>
  E Enum(W v, E last, const char* field) {
    if (static_cast<int>(v) < 0 || static_cast<int>(v) > static_cast<int>(last)) {
      Fail(field, "unknown value " + std::to_string(static_cast<int>(v)));
      return E{};
    }
    return static_cast<E>(v);
  }

 private:
  std::string error_;
};

}  // namespace locum
