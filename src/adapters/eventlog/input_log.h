// DIR/inputs-<term>.log: what the core was told and what it answered, for stepping through a run again. One file per
// coordinator start; where an earlier one had the same term, because its database is lost, inputs-<term>.2.log and so on.
// The records are opaque here (proto/replay.proto).
//
//   offset 0: magic "LOCINPT1"; then records: u32 length, u64 XXH3 of the payload, payload; little-endian
//
// Records are collected in memory and written by Flush. A file that has reached its limit ends with a last record.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace locum {

inline constexpr size_t kMaxInputRecord = 64u << 20;

std::string InputLogName(Term term, unsigned attempt = 1);
// The files of `dir`, by term.
std::vector<std::string> InputLogs(const std::string& dir);

class InputLog {
 public:
  static Result<std::unique_ptr<InputLog>> Create(const std::string& path, uint64_t limit);
  // The first of the term's names in `dir` that is free.
  static Result<std::unique_ptr<InputLog>> CreateIn(const std::string& dir, Term term, uint64_t limit);
  ~InputLog();
  InputLog(const InputLog&) = delete;
  InputLog& operator=(const InputLog&) = delete;

  // kRefused: the limit is reached, and this record was not taken. Another error: it cannot be written; nothing is taken
  // from now on.
  Status Append(std::string_view payload);
  Status Flush();
  uint64_t size() const { return size_; }

 private:
  InputLog(int fd, std::string path, uint64_t limit) : fd_(fd), path_(std::move(path)), limit_(limit) {}
  static Result<std::unique_ptr<InputLog>> Begin(int fd, const std::string& path, uint64_t limit);
  int fd_;
  std::string path_;
  uint64_t limit_;
  uint64_t size_ = 0;
  std::string pending_;
  Status failed_;
};

// Calls `each` per record until it returns false. A torn record at the end, of a coordinator that was killed, ends the
// reading without an error; anything else that is not as written is kCorrupt.
Status ReadInputLog(const std::string& path, const std::function<bool(std::string_view payload)>& each);

}  // namespace locum
