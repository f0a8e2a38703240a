#include "adapters/grpc/wire_check.h"

#include "core/coordinator.h"

namespace locum {

bool IsNodeName(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name[0] == '.' || name[0] == '-') return false;
  for (char c : name) {
    bool good =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!good) return false;
  }
  return true;
}

Term WireCheck::TermOf(uint64_t v, const char* field) {
  if (v > kMaxTerm) Fail(field, "term " + std::to_string(v) + " is beyond the largest");
  return Term(v);
}

Generation WireCheck::Gen(uint64_t v, const char* field) {
  if (v > kMaxGeneration) Fail(field, "generation " + std::to_string(v) + " is beyond the largest");
  return Generation(v);
}

Step WireCheck::StepOf(uint64_t v, const char* field) {
  if (v > kMaxStep) Fail(field, "step " + std::to_string(v) + " is beyond the largest");
  return Step(v);
}

Slot WireCheck::SlotOf(uint32_t v, const char* field) {
  if (v >= static_cast<uint32_t>(kMaxWorkersPerNode)) Fail(field, "slot " + std::to_string(v) + " is too large");
  return Slot(v);
}

Rank WireCheck::RankOf(bool has, uint32_t v, const char* field) {
  if (!has) return kNoRank;
  if (v >= static_cast<uint32_t>(kMaxPeers)) Fail(field, "rank " + std::to_string(v) + " is too large");
  return Rank(v);
}

int32_t WireCheck::Pid(int32_t v, const char* field) {
  if (v < 0) Fail(field, "negative process id " + std::to_string(v));
  return v;
}

int64_t WireCheck::NotNegative(int64_t v, const char* field) {
  if (v < 0) Fail(field, "negative value " + std::to_string(v));
  return v;
}

Duration WireCheck::TimeoutOf(int64_t v, const char* field) {
  const Duration duration = DurationOf(v, field);
  if (duration > kMaxTimeout) Fail(field, std::to_string(v) + " ns is longer than a year");
  return duration;
}

WorkerExit WireCheck::ExitOf(int32_t status, int32_t signal) {
  if (status < 0 || status > kMaxExitStatus) Fail("exit.status", "no process ends with " + std::to_string(status));
  if (signal < 0 || signal > kMaxSignal) Fail("exit.signal", "there is no signal " + std::to_string(signal));
  WorkerExit exit;
  exit.status = status;
  exit.signal = signal;
  return exit;
}

uint32_t WireCheck::AtMost(uint32_t v, uint32_t limit, const char* field) {
  if (v > limit) Fail(field, std::to_string(v) + " is more than " + std::to_string(limit));
  return v;
}

std::string WireCheck::Text(const std::string& v, const char* field, size_t limit) {
  if (v.size() > limit) {
    Fail(field, "longer than " + std::to_string(limit) + " bytes");
    return {};
  }
  if (v.find('\0') != std::string::npos) {
    Fail(field, "contains a zero byte");
    return {};
  }
  return v;
}

std::string WireCheck::NodeName(const std::string& v, const char* field, bool may_be_empty) {
  if (v.empty() && may_be_empty) return v;
  if (!IsNodeName(v)) {
    Fail(field, "is not a node name (letters, digits, '.', '_', '-', at most 128)");
    return {};
  }
  return v;
}

bool WireCheck::Count(int n, int limit, const char* field) {
  if (n > limit) {
    Fail(field, "has " + std::to_string(n) + " entries, more than " + std::to_string(limit));
    return false;
  }
  return true;
}

}  // namespace locum
