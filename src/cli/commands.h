// The subcommands of `locum`. Each returns the process's exit status, and writes its errors to standard error itself.
#pragma once

#include <string>
#include <vector>

#include "adapters/config/config.h"

namespace locum {

struct CoordinatorArgs {
  Config config;
  std::vector<std::string> command;  // empty: take up what DIR holds
  // From `locum run`.
  std::string job;        // empty: a new id
  int lock_fd = -1;       // DIR's lock, which `run` holds
  int local_port = -1;    // not negative: listen there on loopback, whatever the config says
  int parent_pidfd = -1;  // end when this process does
};
int CoordinatorMain(const CoordinatorArgs& args);

struct AgentArgs {
  Config config;
  std::string token_file;
  int parent_pidfd = -1;  // from `locum run`: end when this process does, and the coordinator is known to be there
};
int AgentMain(const AgentArgs& args);

// What a keeper starts.
struct AgentdArgs {
  std::string coordinator, dir, name, address, interface_name;
  int keeper_fd = -1;
};
int AgentdMain(const AgentdArgs& args);

struct RunArgs {
  Config config;
  std::vector<std::string> command;
  std::vector<std::string> passed_on;  // flags for the coordinator, as the user gave them
};
int RunMain(const RunArgs& args);

// Which coordinator or DIR is meant.
struct Target {
  std::string dir, coordinator, token_file;
};
int StatusMain(const Target& target, bool json);
int EventsMain(const Target& target, bool json, bool follow);
int FailbackMain(const Target& target, const std::string& node, bool wait);
int AdoptMain(const Target& target);
int ReplayMain(const std::string& dir, bool verbose);

// "locum: text" on standard error; returns `status`.
int Complain(const std::string& text, int status);

}  // namespace locum
