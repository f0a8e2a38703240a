#include "cli/event_text.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "cli/exit_codes.h"

namespace locum {

using Json = nlohmann::ordered_json;

namespace {

// The others are for the JSON.
bool IsForPeople(const std::string& detail) { return detail == "state" || detail.rfind("rank_", 0) == 0; }

// The local time of day of "2026-12-01T10:15:00.123456Z".
std::string TimeOfDay(const std::string& text) {
  std::tm parts{};
  int micros = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%6d", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
                  &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &micros) != 7) {
    return text;
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  std::time_t seconds = ::timegm(&parts);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char out[32];
  std::snprintf(out, sizeof out, "%02d:%02d:%02d.%03d", local.tm_hour, local.tm_min, local.tm_sec, micros / 1000);
  return out;
}

bool EndsWith(const std::string& text, const std::string& tail) {
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

std::string Figure(const std::string& key, int64_t value) {
  char text[64];
  double v = static_cast<double>(value);
  if (EndsWith(key, "_ns")) {
    std::snprintf(text, sizeof text, v < 1e6 ? " %.3f ms" : v < 1e10 ? " %.1f ms" : " %.0f ms", v / 1e6);
    return key.substr(0, key.size() - 3) + text;
  }
  if (key == "bytes" || EndsWith(key, "_bytes")) {
    std::snprintf(text, sizeof text, v < 1e6 ? " %.0f" : " %.1f MB", v < 1e6 ? v : v / 1e6);
    return key + text;
  }
  if (EndsWith(key, "bytes_per_second")) {
    std::snprintf(text, sizeof text, " %.1f MB/s", v / 1e6);
    return "rate" + std::string(text);
  }
  return key + " " + std::to_string(value);
}

std::string TextIn(const Json& e, const char* key) {
  return e.contains(key) && e[key].is_string() ? e[key].get<std::string>() : "";
}

}  // namespace

bool IsEvent(const Json& e) { return e.is_object() && e.contains("name") && e["name"].is_string(); }

namespace {

std::string TextOf(const Json& e) {
  std::string about;
  auto add = [&](const std::string& text) { about += (about.empty() ? "" : ", ") + text; };
  auto number = [&](const char* key) {
    return e.contains(key) && e[key].is_number_integer() ? e[key].get<int64_t>() : 0;
  };
  if (e.contains("node") && e["node"].is_string()) add(e["node"].get<std::string>());
  if (e.contains("rank") && e["rank"].is_number_integer()) add("rank " + std::to_string(number("rank")));
  if (number("generation") != 0) add("generation " + std::to_string(number("generation")));
  if (number("step") != 0) add("step " + std::to_string(number("step")));
  std::string line = TimeOfDay(TextIn(e, "time")) + "  " + e["name"].get<std::string>();
  if (!about.empty()) line += "  " + about;
  if (std::string reason = TextIn(e, "reason"); !reason.empty()) line += (about.empty() ? "  " : ": ") + reason;
  if (e.contains("details") && e["details"].is_object()) {
    for (const auto& [key, value] : e["details"].items()) {
      if (IsForPeople(key) && value.is_string()) line += ", " + key + " " + value.get<std::string>();
    }
  }
  std::string figures;
  if (e.contains("figures") && e["figures"].is_object()) {
    for (const auto& [key, value] : e["figures"].items()) {
      // Points in time mean something to programs only.
      if (key.rfind("last_", 0) == 0 && EndsWith(key, "_ns")) continue;
      if (value.is_number_integer()) figures += (figures.empty() ? "" : ", ") + Figure(key, value.get<int64_t>());
    }
  }
  if (!figures.empty()) line += " (" + figures + ")";
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

}  // namespace

std::string EventText(const std::string& json_line) {
  Json e = Json::parse(json_line, nullptr, false);
  return IsEvent(e) ? TextOf(e) : json_line;
}

std::string EventTeller::Text(const std::string& json_line) {
  Json e = Json::parse(json_line, nullptr, false);
  if (!IsEvent(e)) return json_line;
  const std::string name = e["name"];
  if (name == "coordinator_started") over_ = false;
  if (name == "job_finished" || name == "job_failed") over_ = true;
  if (over_ && name == "node_stream_lost") return "";
  if (over_ && name == "worker_exited" && TextIn(e, "reason") == "killed by SIGTERM")
    e["reason"] = "ended at the job's end";
  return TextOf(e);
}

std::optional<int> ToldEnd(const std::string& json_lines) {
  for (const char* name : {"\"name\":\"job_finished\"", "\"name\":\"job_failed\""}) {
    const size_t told = json_lines.find(name);
    if (told == std::string::npos) continue;
    constexpr std::string_view kKey = "\"exit_status\":";
    const size_t at = json_lines.find(kKey, told);
    return at == std::string::npos ? kExitFailed : std::atoi(json_lines.c_str() + at + kKey.size());
  }
  return std::nullopt;
}

}  // namespace locum
