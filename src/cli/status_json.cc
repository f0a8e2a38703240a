#include "cli/status_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace locum {
namespace {

double Percent(uint64_t used, uint64_t total) {
  return total == 0 ? 0 : std::round(1000.0 * static_cast<double>(used) / static_cast<double>(total)) / 10;
}

Json UsageJson(const Usage& usage) {
  Json json;
  json["cpu"] = usage.cpu_permille / 10.0;
  json["memory"] = Percent(usage.memory_used, usage.memory_total);
  json["disk"] = Percent(usage.disk_used, usage.disk_total);
  json["network"] = usage.net_received_per_s + usage.net_sent_per_s;
  json["memory_used"] = usage.memory_used;
  json["memory_total"] = usage.memory_total;
  json["disk_used"] = usage.disk_used;
  json["disk_total"] = usage.disk_total;
  json["disk_read_per_s"] = usage.disk_read_per_s;
  json["disk_written_per_s"] = usage.disk_written_per_s;
  json["network_received_per_s"] = usage.net_received_per_s;
  json["network_sent_per_s"] = usage.net_sent_per_s;
  json["when_ns"] = usage.when_ns;
  return json;
}

const char* LifeName(WorkerLife life) {
  switch (life) {
    case WorkerLife::kStarting: return "starting";
    case WorkerLife::kReady: return "ready";
    case WorkerLife::kExited: return "exited";
  }
  return "unknown";
}

Json WorkerJson(const WorkerReport& worker) {
  Json json;
  json["slot"] = worker.slot.value;
  json["worker"] = ToHex(worker.worker.value);
  json["pid"] = worker.pid;
  json["life"] = LifeName(worker.life);
  json["rank"] = worker.state.rank == kNoRank ? Json() : Json(worker.state.rank.value);
  json["step"] = worker.state.word.step.value;
  json["log"] = worker.log;
  json["step_log"] = worker.step_log;
  if (worker.exit) json["exit"] = worker.exit->what;
  return json;
}

std::string Cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value.get<double>());
    return text;
  }
  return value.dump();
}

std::string Columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - row[i].size() + 2, ' ');
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string Rate(const Json& bytes_per_s) {
  double v = bytes_per_s.is_number() ? bytes_per_s.get<double>() : 0;
  const char* units[] = {"B/s", "kB/s", "MB/s", "GB/s"};
  size_t unit = 0;
  for (; v >= 1000 && unit < 3; ++unit) v /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", v, units[unit]);
  return text;
}

bool HasText(const Json& json, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const char* key) { return json.contains(key) && json[key].is_string(); });
}

bool HasAll(const Json& json, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(), [&](const char* key) { return json.contains(key); });
}

// Whether it is what StatusJson makes, as far as StatusTable relies on it. A file may hold anything.
bool IsStatus(const Json& status) {
  if (!status.is_object() || !HasAll(status, {"job", "nodes", "ranks"})) return false;
  const Json& job = status["job"];
  if (!HasText(job, {"id", "state", "reason"}) || !HasAll(job, {"step", "loss", "generation", "spares", "exit_status"}))
    return false;
  if (!job["loss"].is_null() && !job["loss"].is_number()) return false;
  if (!status["nodes"].is_array() || !status["ranks"].is_array()) return false;
  return std::all_of(status["nodes"].begin(), status["nodes"].end(),
                     [](const Json& node) {
                       return HasText(node, {"name", "state", "role", "address", "reason"}) && node.contains("usage") &&
                              HasAll(node["usage"], {"cpu", "memory", "disk", "network"});
                     }) &&
         std::all_of(status["ranks"].begin(), status["ranks"].end(), [](const Json& rank) {
           return HasAll(rank, {"rank", "node", "slot", "worker_pid", "step", "log"});
         });
}

}  // namespace

Json StatusJson(const ClusterView& view) {
  Json job;
  job["state"] = JobPhaseName(view.phase);
  job["step"] = view.step.value;
  job["generation"] = view.generation.value;
  job["spares"] = view.spares;
  job["id"] = view.job;
  job["term"] = view.term.value;
  job["waiting_for"] = view.waiting_for;
  job["loss"] = view.has_loss && std::isfinite(view.loss) ? Json(view.loss) : Json();
  bool over = view.phase == JobPhase::kFinished || view.phase == JobPhase::kFailed;
  job["exit_status"] = over ? Json(view.exit_status) : Json();
  job["reason"] = view.reason;
  job["coordinator"] = "running";

  Json nodes = Json::array();
  for (const NodeView& node : view.nodes) {
    Json n;
    n["name"] = node.name;
    n["state"] = NodeStateName(node.state);
    n["role"] = RoleName(node.role);
    n["address"] = node.address;
    n["keeper_pid"] = node.keeper_pid;
    n["agent_pid"] = node.agent_pid;
    n["usage"] = UsageJson(node.usage);
    n["reason"] = node.reason;
    n["connected"] = node.connected;
    n["workers"] = Json::array();
    for (const WorkerReport& worker : node.workers) n["workers"].push_back(WorkerJson(worker));
    nodes.push_back(std::move(n));
  }
  Json ranks = Json::array();
  for (const RankView& rank : view.ranks) {
    Json r;
    r["rank"] = rank.rank.value;
    r["node"] = rank.node;
    r["worker_pid"] = rank.worker_pid;
    r["step"] = rank.step.value;
    r["slot"] = rank.slot.value;
    r["worker"] = ToHex(rank.worker.value);
    r["log"] = rank.log;
    r["log_offset"] = rank.log_offset;
    r["step_log"] = rank.step_log;
    ranks.push_back(std::move(r));
  }
  Json alarms = Json::array();
  for (const AlarmView& alarm : view.alarms) {
    alarms.push_back({{"name", alarm.name}, {"node", alarm.node}, {"text", alarm.text}, {"age_ns", alarm.age.count()}});
  }
  Json json;
  json["job"] = std::move(job);
  json["nodes"] = std::move(nodes);
  json["ranks"] = std::move(ranks);
  json["alarms"] = std::move(alarms);
  return json;
}

Json StatusJson(const PersistentState& stored, const Json& last) {
  ClusterView view;
  view.job = stored.spec.job;
  view.phase = stored.phase;
  view.term = stored.term;
  view.generation = stored.generation;
  view.step = stored.recovery_step;
  view.exit_status = stored.exit_status;
  view.reason = stored.reason;
  for (const PersistentNode& node : stored.nodes) {
    NodeView& n = view.nodes.emplace_back();
    n.name = node.name;
    n.state = node.state;
    n.role = node.role;
    view.spares += node.role == Role::kSpare;
  }
  for (const Placement& rank : stored.ranks) {
    RankView& r = view.ranks.emplace_back();
    r.rank = rank.rank;
    r.node = rank.node;
    r.slot = rank.slot;
    r.worker = rank.worker;
    r.step = stored.recovery_step;
  }
  Json json = StatusJson(view);
  // What a coordinator of the same job last saw says more than the store, except for what the store decides.
  if (IsStatus(last) && last["job"]["id"] == stored.spec.job) {
    Json job = last["job"];
    for (const char* key : {"state", "generation", "term", "exit_status", "reason"}) job[key] = json["job"][key];
    json = last;
    json["job"] = std::move(job);
    for (Json& node : json["nodes"]) node["connected"] = false;
  }
  json["job"]["waiting_for"] = "";
  json["alarms"] = Json::array();  // nobody watches
  json["job"]["coordinator"] = "not running";
  return json;
}

std::string StatusTable(const Json& status, const std::string& dir) {
  const Json& job = status["job"];
  const std::string reason = job.value("reason", "");
  const bool over = !job["exit_status"].is_null();
  const bool left = job["coordinator"] != "running" && !over;  // unfinished, and nobody decides
  const bool stopped = left && reason.rfind("stopped by ", 0) == 0;
  std::string out = "job " + Cell(job["id"]) + ": " + (stopped ? reason + " while " : "") + Cell(job["state"]) +
                    ", step " + Cell(job["step"]);
  if (!job["loss"].is_null()) {
    char text[48];
    std::snprintf(text, sizeof text, ", loss %.6g", job["loss"].get<double>());
    out += text;
  }
  out += ", generation " + Cell(job["generation"]) + ", spares " + Cell(job["spares"]);
  if (!job["exit_status"].is_null()) out += ", exit status " + Cell(job["exit_status"]);
  out += "\n";
  if (job["coordinator"] != "running") out += "no coordinator runs; this is what it left\n";
  if (left) {
    out += "'locum coordinator --dir " + (dir.empty() ? "DIR" : dir) +
           "' takes the job up again if its nodes still run, whose memory holds the state;\n"
           "else start it again in a new --dir\n";
  }
  if (!reason.empty() && !stopped) out += "reason: " + reason + "\n";
  if (std::string waits = job.value("waiting_for", ""); !waits.empty()) out += "waiting for " + waits + "\n";
  for (const Json& alarm : status["alarms"]) {
    const std::string node = alarm.value("node", "");
    out += "alarm " + Cell(alarm["name"]) + (node.empty() ? "" : " " + node) + ": " + alarm.value("text", "") + "\n";
  }

  std::vector<std::vector<std::string>> rows;
  rows.push_back({"NODE", "STATE", "ROLE", "RANKS", "ADDRESS", "CPU%", "MEM%", "DISK%", "NETWORK", "REASON"});
  for (const Json& node : status["nodes"]) {
    std::string ranks;
    for (const Json& rank : status["ranks"]) {
      if (rank["node"] == node["name"]) ranks += (ranks.empty() ? "" : ",") + Cell(rank["rank"]);
    }
    const Json& usage = node["usage"];
    rows.push_back({Cell(node["name"]), Cell(node["state"]), Cell(node["role"]), ranks.empty() ? "-" : ranks,
                    Cell(node["address"]), Cell(usage["cpu"]), Cell(usage["memory"]), Cell(usage["disk"]),
                    Rate(usage["network"]), node.value("reason", "")});
  }
  if (rows.size() > 1) out += "\n" + Columns(rows);
  rows.clear();
  rows.push_back({"RANK", "NODE", "SLOT", "PID", "STEP", "LOG"});
  for (const Json& rank : status["ranks"]) {
    rows.push_back({Cell(rank["rank"]), Cell(rank["node"]), Cell(rank["slot"]), Cell(rank["worker_pid"]),
                    Cell(rank["step"]), Cell(rank["log"])});
  }
  if (rows.size() > 1) out += "\n" + Columns(rows);
  return out;
}

std::string DumpJson(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace locum
