// A node's two processes, put together from decisions, event loops and this operating system.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ports/coordinator_link.h"

namespace locum {

struct KeeperOptions {
  std::string dir;                                                     // the node's own; made if it is not there
  std::string name;                                                    // the node's
  std::vector<std::string> agent_command;                              // exec'ed with "--keeper-fd", "<n>" appended
  std::vector<std::pair<std::string, std::string>> agent_environment;  // beside the keeper's own
  int parent_pidfd = -1;                                               // the keeper shuts down when this process dies
  std::function<void(int)> ended;  // told the exit status while the directory is still locked
};
// Blocks until the keeper was shut down and nothing of the node is left; returns the process's exit status. Writes to
// standard error what keeps it from working. To be called while the process has one thread.
int RunKeeper(const KeeperOptions& options);

struct AgentOptions {
  std::string dir;
  std::string name;
  std::string address;         // the host part that workers bind and advertise
  std::string interface_name;  // whose traffic is shown; empty: all but the loopback
  std::string token;
  int keeper_fd = -1;
};
// Blocks until the keeper is gone; returns the process's exit status. `link` is not started yet.
int RunAgent(const AgentOptions& options, std::unique_ptr<CoordinatorLink> link);

}  // namespace locum
