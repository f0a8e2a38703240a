// Processes that outlived everything that should have ended them: their worker, its reaper and the keeper were all
// killed at one moment. What still names them is the variable LOCUM_SOCKET, which every descendant of a worker
// inherits, whatever session or parent it has given itself.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace locum {

// Processes, of those this user may look into, that were started with LOCUM_SOCKET=`socket_path`.
std::vector<pid_t> FindStrays(const std::string& socket_path);

// Kills them again and again until none is left. The caller holds the directory's lock, so no keeper runs there.
// How many were found; kUnavailable, naming them, when some do not end within `patience`. Blocks.
Result<size_t> EndStrays(const std::string& socket_path, Duration patience);

}  // namespace locum
