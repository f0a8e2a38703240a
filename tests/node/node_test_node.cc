// The two processes of a node, with a coordinator that a test plays.
//
//   node_test_node keeper DIR SOCKET [PARENT_PID]   keeper; its agent is "agentd DIR SOCKET"
//   node_test_node agentd DIR SOCKET --keeper-fd N
#include <cstdio>
#include <cstdlib>
#include <string>

#include "adapters/posix/pidfd.h"
#include "cli/node_main.h"
#include "tests/node/fake_coordinator.h"

int main(int argc, char** argv) {
  std::string mode = argc > 3 ? argv[1] : "";
  if (mode == "keeper") {
    locum::KeeperOptions options;
    options.dir = argv[2];
    options.name = "node-a";
    const char* agent = std::getenv("NODE_TEST_AGENT");  // another program, for tests of what is no agent
    options.agent_command = {agent != nullptr ? agent : argv[0], "agentd", argv[2], argv[3]};
    if (argc > 4) options.parent_pidfd = locum::PidfdOpen(std::atoi(argv[4]));
    return locum::RunKeeper(options);
  }
  if (mode == "agentd" && argc == 6) {
    locum::AgentOptions options;
    options.dir = argv[2];
    options.name = "node-a";
    options.address = "127.0.0.1";
    options.interface_name = "lo";
    options.token = "secret";
    options.keeper_fd = std::atoi(argv[5]);
    return locum::RunAgent(options, locum::test::MakeFakeLink(argv[3]));
  }
  std::fprintf(stderr, "usage: node_test_node keeper|agentd DIR SOCKET ...\n");
  return 2;
}
