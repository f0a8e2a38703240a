#include "node/exit_text.h"

#include <cstring>

namespace locum {
namespace {

// The length of the well-formed UTF-8 sequence at the head of `text`, or 0. Overlong forms, surrogates and what
// lies beyond U+10FFFF are not well-formed.
size_t SequenceLength(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(0);
  size_t length = lead < 0x80                   ? 1
                  : lead >= 0xc2 && lead < 0xe0 ? 2
                  : lead >= 0xe0 && lead < 0xf0 ? 3
                  : lead >= 0xf0 && lead < 0xf5 ? 4
                                                : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) >= 0xa0) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;
  return length;
}

bool IsControl(unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }

}  // namespace

std::string DescribeEnd(const ProcessEnd& end) {
  if (end.signal == 0) return "exit status " + std::to_string(end.status);
  const char* name = sigabbrev_np(end.signal);
  return "killed by " + (name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(end.signal));
}

std::string PrintableTail(std::string_view raw, size_t limit) {
  if (raw.size() > limit) {
    raw.remove_prefix(raw.size() - limit);
    for (int i = 0; i < 3 && !raw.empty() && (static_cast<unsigned char>(raw[0]) & 0xc0) == 0x80; ++i) {
      raw.remove_prefix(1);
    }
  }
  std::string out;
  out.reserve(raw.size());
  while (!raw.empty()) {
    size_t length = SequenceLength(raw);
    if (length == 0 || (length == 1 && IsControl(static_cast<unsigned char>(raw[0])))) {
      out += '?';
      raw.remove_prefix(1);
    } else {
      out += raw.substr(0, length);
      raw.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace locum
