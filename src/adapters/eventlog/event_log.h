// DIR/events.jsonl: the history made for people and tools, one JSON object a line, only ever appended to. The keys and
// the event names are stable; docs/protocol.md lists them.
//
//   {"time":"2026-12-01T10:15:00.123456Z","monotonic_ns":1,"name":"fault_detected","node":"node-2","rank":1,
//    "incarnations":{"keeper":"16 hex digits","agent":"...","worker":"..."},"term":1,"generation":3,"step":812,
//    "reason":"...","figures":{"duration_ns":5},"details":{"key":"text"}}
//
// `node` and `rank` are null where an event is about none. The store, not this file, is what a coordinator starts
// from, so a line may be lost with the machine, but never half of one read as a whole.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "core/coordinator.h"

namespace locum {

inline constexpr const char* kEventsFile = "events.jsonl";

// Nanoseconds since 1970 as "2026-12-01T10:15:00.123456Z".
std::string FormatWallTime(int64_t unix_ns);
// The line, with its newline.
std::string FormatEvent(const Note& note, Term term, Time monotonic, int64_t unix_ns);

class EventLog {
 public:
  // Appends to what is there. Half a line at the end, from a machine that stopped, is cut off.
  static Result<std::unique_ptr<EventLog>> Open(const std::string& path);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  // One write per line.
  Status Append(const std::string& line);

 private:
  EventLog(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

}  // namespace locum
