// What must be equal on all ranks for equal bits, as "key=value" lines: the library's own, then the program's.
#pragma once

#include <string>

#include "base/status.h"

namespace locum {

// "x86-64-v1" to "x86-64-v4" by what processor and kernel offer; another name on another architecture.
std::string IsaLevel();
// The build id of the running executable, or a hash of its content when it has none.
std::string BuildId();
// kInvalid when the program's text is not "key=value" lines, or uses a key of the library's.
Result<std::string> MakeFingerprint(const std::string& program);

}  // namespace locum
