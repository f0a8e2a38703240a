// The one error type inside Locum. It is not absl::Status because base, state, ports and the posix and
// tcp adapters are also part of the worker library, which may not depend on Abseil.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace locum {

// A code exists only where a caller acts on it.
enum class Code {
  kOk,
  kInvalid,      // what a user, a peer or a file gave is wrong; the message says where and what to do
  kUnavailable,  // the other side is not there now; trying again may help
  kTimeout,      // a deadline passed
  kRefused,      // the other side said no; trying again does not help
  kInterrupted,  // a recovery began; go back to NextStep
  kCorrupt,      // bytes are not what their checksum says
  kInternal,     // an operating-system call failed in a way nobody planned for
};

const char* CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // The same error, with what was being done put before the message: "context: message".
  Status Annotate(const std::string& context) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
inline Status Invalid(std::string m) { return {Code::kInvalid, std::move(m)}; }
inline Status Unavailable(std::string m) { return {Code::kUnavailable, std::move(m)}; }
inline Status Timeout(std::string m) { return {Code::kTimeout, std::move(m)}; }
inline Status Refused(std::string m) { return {Code::kRefused, std::move(m)}; }
inline Status Interrupted(std::string m) { return {Code::kInterrupted, std::move(m)}; }
inline Status Corrupt(std::string m) { return {Code::kCorrupt, std::move(m)}; }
inline Status Internal(std::string m) { return {Code::kInternal, std::move(m)}; }
// "what: strerror(err)" as kInternal.
Status ErrnoStatus(int err, const std::string& what);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                       // NOLINT
  Result(Status status) : status_(std::move(status)) { LOCUM_CHECK(!status_.ok()); }  // NOLINT

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& value() & {
    LOCUM_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    LOCUM_CHECK(ok());
    return *value_;
  }
  T&& value() && {
    LOCUM_CHECK(ok());
    return std::move(*value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define LOCUM_RETURN_IF_ERROR(expr)                                          \
  do {                                                                       \
    if (auto locum_status = (expr); !locum_status.ok()) return locum_status; \
  } while (0)

}  // namespace locum
