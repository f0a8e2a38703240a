#include "cli/node_main.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "adapters/posix/agent_host.h"
#include "adapters/posix/keeper_host.h"
#include "adapters/procfs/node_sensor.h"
#include "runtime/agent.h"
#include "runtime/keeper.h"

namespace locum {

int RunKeeper(const KeeperOptions& options) {
  auto host = PosixKeeperHost::Create(
      {options.dir, options.name, options.agent_command, options.agent_environment, options.parent_pidfd});
  if (!host.ok()) {
    std::fprintf(stderr, "locum agent: %s\n", host.status().message().c_str());
    return 1;
  }
  int status = RunKeeper(host->get(), ::getpid());
  if (options.ended) options.ended(status);
  return status;
}

int RunAgent(const AgentOptions& options, std::unique_ptr<CoordinatorLink> link) {
  auto host = PosixAgentHost::Create(options.keeper_fd);
  if (!host.ok()) {
    std::fprintf(stderr, "locum agentd: %s\n", host.status().message().c_str());
    return 1;
  }
  std::error_code error;
  std::string dir = std::filesystem::canonical(options.dir, error).string();
  if (error) {
    std::fprintf(stderr, "locum agentd: directory '%s': %s\n", options.dir.c_str(), error.message().c_str());
    return 1;
  }
  NodeSensor sensor(dir, options.interface_name);
  AgentSetup setup{dir, options.name, options.address, options.token, ::getpid()};
  int status = RunAgent(setup, host->get(), link.get(), &sensor);
  link.reset();  // its threads may still wake the host
  return status;
}

}  // namespace locum
