// `locum agent`: finds out how this node is reached, sees that the coordinator answers, and becomes the keeper; and
// `locum agentd`, which the keeper starts.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "adapters/grpc/client.h"
#include "adapters/grpc/link.h"
#include "adapters/grpc/wire_check.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/net.h"
#include "cli/node_main.h"
#include "cli/start_dir.h"

namespace locum {
namespace {

constexpr auto kFirstPause = std::chrono::milliseconds(100);
constexpr size_t kShownName = 64;  // in a message
constexpr auto kLongestPause = std::chrono::milliseconds(1000);

std::string DefaultName() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  std::string name;
  for (char c : std::string(host)) name += IsNodeName("x" + std::string(1, c)) ? c : '-';
  return IsNodeName(name) ? name : "node";
}

// Asks until the coordinator has answered; returns an exit status.
int Probe(const std::string& address, const std::string& token, Duration limit) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  std::chrono::milliseconds pause = kFirstPause;
  std::string told;
  while (true) {
    GrpcClient client(address, token);
    Status status = client.View(std::chrono::seconds(2)).status();
    if (status.ok()) return kExitOk;
    if (status.code() == Code::kRefused || status.code() == Code::kInvalid)
      return Complain(status.message(), kExitFailed);
    if (std::chrono::steady_clock::now() + pause >= deadline) {
      return Complain(status.message() + "; given up (--connect-timeout)", kExitFailed);
    }
    if (status.message() != told) Complain(status.message() + "; trying again", 0);
    told = status.message();
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

// In a process of its own: the keeper must never have had a second thread, and gRPC makes some.
int ProbeInChild(const std::string& address, const std::string& token, Duration limit) {
  std::fflush(nullptr);
  pid_t child = ::fork();
  if (child < 0) return Complain("cannot fork", kExitFailed);
  if (child == 0) {
    int status = Probe(address, token, limit);
    std::fflush(nullptr);
    ::_exit(status);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int AgentMain(const AgentArgs& args) {
  const Config& config = args.config;
  if (Status enough = CheckDescriptors(kLeastDescriptors); !enough.ok()) return Complain(enough.message(), kExitUsage);
  auto coordinator = ParseHostPort(config.coordinator, "--coordinator");
  if (!coordinator.ok()) return Complain(coordinator.status().message(), kExitUsage);
  std::string name = config.name.empty() ? DefaultName() : config.name;
  if (!IsNodeName(name)) {
    if (name.size() > kShownName) name = name.substr(0, kShownName) + "...";
    return Complain("--name: '" + name + "' is not a node name (letters, digits, '.', '_', '-', at most 128)",
                    kExitUsage);
  }
  auto token = FindToken(config.agent_token_file, "");
  if (!token.ok()) return Complain(token.status().message(), kExitUsage);
  auto address =
      config.agent_interface.empty() ? LocalAddressTowards(*coordinator) : InterfaceAddress(config.agent_interface);
  if (!address.ok()) return Complain(address.status().message(), kExitUsage);
  std::string dir =
      AbsolutePath(config.agent_dir.empty() ? std::string(kRunsDir) + "/agents/" + name : config.agent_dir);
  const std::string setting = DirSetting(config, "agent.dir");
  if (Status usable = StartDir::Check(dir, setting); !usable.ok()) return Complain(usable.message(), kExitUsage);
  if (args.parent_pidfd < 0) {
    int probed = ProbeInChild(config.coordinator, *token, config.connect_timeout);
    if (probed != kExitOk) return probed;
  }

  StartDir start;
  if (Status made = start.Make(dir, setting); !made.ok()) return Complain(made.message(), StartExit(made));
  KeeperOptions options;
  options.dir = dir;
  options.name = name;
  options.parent_pidfd = args.parent_pidfd;
  options.agent_command = {OwnProgram(), "agentd",    "--coordinator", config.coordinator, "--dir", dir, "--name",
                           name,         "--address", *address};
  if (!config.agent_interface.empty()) {
    options.agent_command.insert(options.agent_command.end(), {"--interface", config.agent_interface});
  }
  options.agent_environment = {{kTokenVariable, *token}};  // the file may be gone when an agent is started again
  // Refused before it ever joined: the reason was told, and nobody needs what it has made.
  options.ended = [&](int status) {
    if (status != kExitFailed || HoldsWorkerFiles(dir)) return start.Keep();
    start.Guard(IsAgentFile);
    start.Clear();
  };
  return RunKeeper(options);
}

int AgentdMain(const AgentdArgs& args) {
  ::signal(SIGPIPE, SIG_IGN);
  auto token = FindToken("", "");
  if (!token.ok()) return Complain(token.status().message(), kExitUsage);
  AgentOptions options;
  options.dir = args.dir;
  options.name = args.name;
  options.address = args.address;
  // A node that is reached by the loopback only has its traffic there.
  options.interface_name = args.interface_name.empty() && IsLoopback(args.address) ? "lo" : args.interface_name;
  options.token = *token;
  options.keeper_fd = args.keeper_fd;
  return RunAgent(options, MakeGrpcLink({args.coordinator, *token}));
}

}  // namespace locum
