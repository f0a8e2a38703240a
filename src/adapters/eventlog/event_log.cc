#include "adapters/eventlog/event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

namespace locum {

std::string FormatWallTime(int64_t unix_ns) {
  std::time_t seconds = static_cast<std::time_t>(unix_ns / 1000000000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", parts.tm_year + 1900, parts.tm_mon + 1,
                parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(unix_ns % 1000000000 / 1000));
  return text;
}

std::string FormatEvent(const Note& note, Term term, Time monotonic, int64_t unix_ns) {
  nlohmann::ordered_json line;
  line["time"] = FormatWallTime(unix_ns);
  line["monotonic_ns"] = monotonic.ns;
  line["name"] = note.name;
  line["node"] = note.node.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(note.node);
  line["rank"] = note.rank == kNoRank ? nlohmann::ordered_json() : nlohmann::ordered_json(note.rank.value);
  auto incarnations = nlohmann::ordered_json::object();
  if (note.keeper.value != 0) incarnations["keeper"] = ToHex(note.keeper.value);
  if (note.agent.value != 0) incarnations["agent"] = ToHex(note.agent.value);
  if (note.worker.value != 0) incarnations["worker"] = ToHex(note.worker.value);
  line["incarnations"] = std::move(incarnations);
  line["term"] = term.value;
  line["generation"] = note.generation.value;
  line["step"] = note.step.value;
  line["reason"] = note.reason;
  auto figures = nlohmann::ordered_json::object();
  for (const auto& [key, value] : note.figures) figures[key] = value;
  line["figures"] = std::move(figures);
  auto details = nlohmann::ordered_json::object();
  for (const auto& [key, value] : note.details) details[key] = value;
  line["details"] = std::move(details);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<std::unique_ptr<EventLog>> EventLog::Open(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "cannot open " + path);
  std::unique_ptr<EventLog> log(new EventLog(fd, path));
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "cannot read " + path);
  off_t end = info.st_size;
  char c = '\n';
  while (end > 0 && ::pread(fd, &c, 1, end - 1) == 1 && c != '\n') --end;
  if (end != info.st_size && ::ftruncate(fd, end) != 0) return ErrnoStatus(errno, "cannot mend " + path);
  return log;
}

EventLog::~EventLog() {
  Status ignored = Flush();
  ::close(fd_);
}

namespace {

// Stands where lines were dropped: at the time, term and generation of the last of them.
std::string DroppedLine(const std::string& last, uint64_t count) {
  auto line = nlohmann::ordered_json::parse(last, nullptr, false);
  if (!line.is_object()) line = nlohmann::ordered_json::object();
  line["name"] = "events_dropped";
  line["node"] = line["rank"] = nullptr;
  line["incarnations"] = line["details"] = nlohmann::ordered_json::object();
  line["reason"] = "the event log could not be written for so long that the oldest events were dropped";
  line["figures"] = {{"events", count}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

Status EventLog::Append(const std::string& line) {
  Status status = Flush();
  if (status.ok()) status = Write(line);
  if (status.ok()) return status;
  waiting_.push_back(line);
  waiting_bytes_ += line.size();
  while (waiting_.size() > kMaxWaitingLines || waiting_bytes_ > kMaxWaitingBytes) {
    dropped_like_ = std::move(waiting_.front());
    waiting_bytes_ -= dropped_like_.size();
    waiting_.pop_front();
    ++dropped_;
  }
  return status;
}

Status EventLog::Flush() {
  if (dropped_ > 0) {
    LOCUM_RETURN_IF_ERROR(Write(DroppedLine(dropped_like_, dropped_)));
    dropped_ = 0;
  }
  while (!waiting_.empty()) {
    LOCUM_RETURN_IF_ERROR(Write(waiting_.front()));
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
  }
  return OkStatus();
}

Status EventLog::Write(const std::string& line) {
  ssize_t n = ::write(fd_, line.data(), line.size());
  if (n == static_cast<ssize_t>(line.size())) return OkStatus();
  int err = n < 0 ? errno : ENOSPC;
  // Half a line must not stay in front of the next one.
  if (n > 0) {
    struct stat info {};
    if (::fstat(fd_, &info) == 0) [[maybe_unused]]
      int r = ::ftruncate(fd_, info.st_size - n);
  }
  return ErrnoStatus(err, "cannot append to " + path_);
}

}  // namespace locum
