// The agent's event loop: joins its decisions (node/node_core.h) to the operating system, the coordinator and the
// sensors. One thread owns the state; the link's threads and the sensors' thread hand it what they have.
#pragma once

#include <string>

#include "ports/agent_host.h"
#include "ports/coordinator_link.h"
#include "ports/usage_sensor.h"

namespace locum {

struct AgentSetup {
  std::string dir;      // absolute
  std::string name;     // the node's
  std::string address;  // the host part that its workers bind and advertise
  std::string token;
  int32_t own_pid = 0;
};

// Blocks until the keeper is gone; returns the process's exit status.
int RunAgent(const AgentSetup& setup, AgentHost* host, CoordinatorLink* link, UsageSensor* sensor);

}  // namespace locum
