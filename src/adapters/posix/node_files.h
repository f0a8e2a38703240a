// Small things that keeper and agent do with files: lines for the node's log (time in UTC, who, the event's stable
// name, a text), and looking at logs of workers.
#pragma once

#include <string>

#include "base/ids.h"

namespace locum {

// One write to a descriptor opened for appending, so that keeper and agent may share the file.
void AppendLogLine(int fd, const std::string& who, const std::string& name, const std::string& text);

// The last `limit` bytes of a file, or fewer; empty when it cannot be read.
std::string ReadTail(const std::string& path, size_t limit);

// 0 when there is none.
uint64_t FileBytes(const std::string& path);

// Random bits from the kernel, never 0.
uint64_t DrawRandom();

}  // namespace locum
