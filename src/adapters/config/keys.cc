#include "adapters/config/keys.h"

#include <algorithm>
#include <vector>

namespace locum {
namespace {

constexpr Key kKeys[] = {
    {"job.nodes", U32Field{&Config::nodes, 1, 4096}},
    {"job.spares", U32Field{&Config::spares, 0, 4096}},
    {"job.nproc_per_node", U32Field{&Config::nproc_per_node, 1, 1024}},
    {"job.seed", U64Field{&Config::seed}},
    {"job.dir", TextField{&Config::dir}},
    {"job.command", ListField{&Config::command}},
    {"timeouts.heartbeat", TimeoutField{&Timeouts::heartbeat}},
    {"timeouts.silence", TimeoutField{&Timeouts::silence}},
    {"timeouts.lost_stream_grace", TimeoutField{&Timeouts::lost_stream_grace}},
    {"timeouts.culprit_grace", TimeoutField{&Timeouts::culprit_grace}},
    {"timeouts.freeze", TimeoutField{&Timeouts::freeze}},
    {"timeouts.collective", TimeoutField{&Timeouts::collective}},
    {"timeouts.park", TimeoutField{&Timeouts::park}},
    {"timeouts.join", TimeoutField{&Timeouts::join}},
    {"timeouts.gather", TimeoutField{&Timeouts::gather}},
    {"timeouts.hang", TimeoutField{&Timeouts::hang}},
    {"timeouts.grace", TimeoutField{&Timeouts::grace}},
    {"timeouts.finish", TimeoutField{&Timeouts::finish}},
    {"timeouts.adopt", TimeoutField{&Timeouts::adopt}},
    {"recovery.worker", TextField{&Config::recovery_worker}},
    {"limits.restarts", U32Field{&Config::limit_restarts, 0, 1000000}},
    {"limits.recoveries", U32Field{&Config::limit_recoveries, 1, 1000000}},
    {"limits.window", DurationField{&Config::limit_window}},
    {"coordinator.listen", TextField{&Config::listen}},
    {"coordinator.port", U32Field{&Config::port, 0, 65535}},
    {"coordinator.interface", TextField{&Config::interface_name}},
    {"coordinator.token_file", TextField{&Config::token_file}},
    {"coordinator.input_log_mib", U64Field{&Config::input_log_mib}},
    {"agent.coordinator", TextField{&Config::coordinator}},
    {"agent.name", TextField{&Config::name}},
    {"agent.dir", TextField{&Config::agent_dir}},
    {"agent.interface", TextField{&Config::agent_interface}},
    {"agent.token_file", TextField{&Config::agent_token_file}},
    {"agent.connect_timeout", DurationField{&Config::connect_timeout}},
    {"run.restart_nodes", BoolField{&Config::restart_nodes}},
    {"run.restart_delay", DurationField{&Config::restart_delay}},
    {"run.restart_delay_max", DurationField{&Config::restart_delay_max}},
    {"run.restart_limit", U32Field{&Config::restart_limit, 0, 1000000}},
};

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = row[j];
      row[j] = next;
    }
  }
  return row[b.size()];
}

std::span<const Key> Keys() { return kKeys; }

const Key* FindKey(std::string_view path) {
  for (const Key& key : kKeys) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

std::string_view NearestKey(std::string_view path) {
  std::string_view name = path.substr(path.rfind('.') == path.npos ? 0 : path.rfind('.') + 1);
  std::string_view best;
  size_t best_distance = 4;  // further away it is no help
  if (path.size() > 200) return best;
  for (const Key& key : kKeys) {
    size_t distance = EditDistance(path, key.path);
    // The right name in the wrong section is as near as one letter.
    if (key.path.substr(key.path.find('.') + 1) == name) distance = std::min<size_t>(distance, 1);
    if (distance < best_distance) {
      best = key.path;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace locum
