#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/ids.h"
#include "base/status.h"

namespace locum {

void CheckFailed(const char* file, int line, const char* what) {
  char text[512];
  int n = std::snprintf(text, sizeof text, "%s:%d: check failed: %s\n", file, line, what);
  if (n > static_cast<int>(sizeof text) - 1) n = sizeof text - 1;
  [[maybe_unused]] ssize_t written = ::write(2, text, static_cast<size_t>(n));
  std::abort();
}

std::string ToHex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

bool ParseHex(const std::string& text, uint64_t* value) {
  if (text.empty() || text.size() > 16) return false;
  uint64_t v = 0;
  for (char c : text) {
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    v = v << 4 | static_cast<uint64_t>(digit);
  }
  *value = v;
  return true;
}

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalid: return "invalid";
    case Code::kUnavailable: return "unavailable";
    case Code::kTimeout: return "timeout";
    case Code::kRefused: return "refused";
    case Code::kInterrupted: return "interrupted";
    case Code::kCorrupt: return "corrupt";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

Status Status::Annotate(const std::string& context) const {
  return ok() ? *this : Status(code_, context + ": " + message_);
}

Status ErrnoStatus(int err, const std::string& what) { return Internal(what + ": " + std::strerror(err)); }

}  // namespace locum
