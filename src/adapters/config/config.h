// What the user may set, from a TOML file and from flags. Every flag has a key; a flag overrides the file. Each value
// remembers where it came from, so that an error names the file and line, or the flag.
//
//   [job]          nodes, spares, nproc_per_node, seed, dir, command
//   [timeouts]     heartbeat, silence, lost_stream_grace, culprit_grace, freeze, collective, park, join, gather, hang,
//                  grace, finish, adopt
//   [recovery]     worker
//   [limits]       restarts, recoveries, window
//   [coordinator]  listen, port, interface, token_file, input_log_mib
//   [agent]        coordinator, name, dir, interface, token_file, connect_timeout
//   [run]          restart_nodes, restart_delay, restart_delay_max, restart_limit
//
// Durations are texts such as "250ms", "5s", "2m".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/coordinator.h"

namespace locum {

struct Config {
  // [job]
  uint32_t nodes = 1;
  uint32_t spares = 0;
  uint32_t nproc_per_node = 1;
  uint64_t seed = 0;
  std::string dir;
  std::vector<std::string> command;
  // [timeouts]
  Timeouts timeouts;
  // [recovery]
  std::string recovery_worker = "restart";  // or "spare"
  // [limits]
  uint32_t limit_restarts = Limits{}.restarts;
  uint32_t limit_recoveries = Limits{}.recoveries;
  Duration limit_window = Limits{}.window;
  // [coordinator]
  std::string listen;  // HOST:PORT
  uint32_t port = 0;
  std::string interface_name;
  std::string token_file;
  uint64_t input_log_mib = 1024;
  // [agent]
  std::string coordinator;  // HOST:PORT
  std::string name;
  std::string agent_dir;
  std::string agent_interface;
  std::string agent_token_file;
  Duration connect_timeout = std::chrono::seconds(60);
  // [run]
  bool restart_nodes = true;
  Duration restart_delay = std::chrono::seconds(1);
  Duration restart_delay_max = std::chrono::seconds(30);
  uint32_t restart_limit = 20;  // of one node, in a run

  // "file:line" or "--flag" of every key that was set, as "job.nodes".
  std::map<std::string, std::string> origin;

  bool Has(const std::string& key) const { return origin.count(key) != 0; }
};

// "1500ms", "2s", "1m", "90us", "0s". kInvalid says what is wrong with it.
Result<Duration> ParseDuration(const std::string& text);
std::string FormatDuration(Duration duration);

// `file` is what errors call it. Each error is "file:line: key: reason".
Result<Config> ParseConfig(const std::string& toml, const std::string& file);
Result<Config> LoadConfig(const std::string& path);

// Sets one key from a flag's text, as if it had been written in the file.
Status SetFromFlag(const std::string& key, const std::string& flag, const std::string& value, Config* config);

// Ranges and contradictions, after flags were applied. The error begins with where the offending value was set.
Status CheckConfig(const Config& config);

}  // namespace locum
