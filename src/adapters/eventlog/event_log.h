// DIR/events.jsonl: the history made for people and tools, one JSON object a line, only ever appended to. The keys and
// the event names are stable; docs/protocol.md lists them.
//
//   {"time":"2026-12-01T10:15:00.123456Z","monotonic_ns":1,"name":"fault_detected","node":"node-2","rank":1,
//    "incarnations":{"keeper":"16 hex digits","agent":"...","worker":"..."},"term":1,"generation":3,"step":812,
//    "reason":"...","figures":{"duration_ns":5},"details":{"key":"text"}}
//
// `node` and `rank` are null where an event is about none. The store, not this file, is what a coordinator starts
// from, so a line may be lost with the machine, but never half of one read as a whole.
//
// Lines that cannot be written, because the disk is full, wait in memory, up to a limit, and are written in their order
// once there is room; beyond the limit the oldest go, and the event `events_dropped` stands for them.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "base/status.h"
#include "core/coordinator.h"

namespace locum {

inline constexpr const char* kEventsFile = "events.jsonl";
inline constexpr size_t kMaxWaitingLines = 4096;
inline constexpr size_t kMaxWaitingBytes = 4u << 20;

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
  // One write per line. An error: it waits, and so does every later one.
  Status Append(const std::string& line);
  // Writes what waits, if anything does.
  Status Flush();
  size_t waiting() const { return waiting_.size(); }

 private:
  EventLog(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status Write(const std::string& line);
  int fd_;
  std::string path_;
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  uint64_t dropped_ = 0;
  std::string dropped_like_;  // the last line that was dropped; its head serves for the one that says so
};

}  // namespace locum
