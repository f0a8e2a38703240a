// Words for how a process ended, and its last words made fit for messages.
#pragma once

#include <string>
#include <string_view>

#include "base/supervision.h"

namespace locum {

// "exit status 3", "killed by SIGSEGV".
std::string DescribeEnd(const ProcessEnd& end);

// The last `limit` bytes of `raw`, cut at a character, as valid UTF-8: what is not, and control characters other
// than newline and tab, become '?'. Logs of training programs hold anything; messages to people and wires do not.
std::string PrintableTail(std::string_view raw, size_t limit);

}  // namespace locum
