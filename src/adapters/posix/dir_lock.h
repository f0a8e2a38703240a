// One keeper a directory. Two locks on one file say two things:
//   - a record lock (fcntl) belongs to the keeper's process alone: held means that a keeper runs, and the kernel
//     names its pid;
//   - a whole-file lock (flock) is inherited by the reapers: held means that something of a keeper's workers is left.
// The file stays, but for an agent that never joined, which takes it away while it holds both locks; so who has
// locked a file looks whether it is still the one of that name.
#pragma once

#include <string>

#include "adapters/posix/owned_fd.h"
#include "base/ids.h"
#include "base/status.h"

namespace locum {

// Takes both locks of `directory`/keeper.lock. kRefused when a keeper runs there; waits up to `patience` for what an
// earlier keeper has left to end. The descriptor holds the locks; no other descriptor of the file may ever be
// closed by this process, since that would drop the record lock.
Result<OwnedFd> LockDirectory(const std::string& directory, Duration patience);

}  // namespace locum
