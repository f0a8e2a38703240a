// The keeper's event loop: joins its decisions (node/keeper_core.h) to the operating system (ports/keeper_host.h).
#pragma once

#include "ports/keeper_host.h"

namespace locum {

// Blocks until the keeper has ended its workers and its agent; returns the process's exit status.
int RunKeeper(KeeperHost* host, int32_t own_pid);

}  // namespace locum
