// Where the threads of a process stand, as evidence of a hang: what the kernel tells of each thread, and the program's
// own frames where elfutils' eu-stack is installed and may look.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace locum {

// Appends to the file. Blocks for as long as the kernel does, up to a few seconds for eu-stack: to be called in a
// process of its own. An error only when the file cannot be written.
Status WriteStacks(pid_t pid, const std::string& path);

}  // namespace locum
