#include "adapters/eventlog/event_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "adapters/eventlog/input_log.h"

namespace locum {
namespace {

struct TempDir {
  TempDir() { LOCUM_CHECK(::mkdtemp(path.data()) != nullptr); }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string File(const std::string& name) const { return path + "/" + name; }
  std::string path = "/tmp/locum-eventlog-XXXXXX";
};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Note Fault() {
  Note note;
  note.name = "fault_detected";
  note.node = "node-2";
  note.rank = Rank(1);
  note.worker = Incarnation(0xabc);
  note.generation = Generation(3);
  note.step = Step(812);
  note.reason = "killed by SIGKILL";
  note.figures = {{"silence_ns", 5}};
  note.details = {{"cause", "exit"}};
  return note;
}

TEST(EventLog, Line_HasTheNamedKeysInOrder) {
  EXPECT_EQ(
      FormatEvent(Fault(), Term(2), Time{77}, 1796120100123456789),
      R"({"time":"2026-12-01T10:15:00.123456Z","monotonic_ns":77,"name":"fault_detected","node":"node-2","rank":1,)"
      R"("incarnations":{"worker":"0000000000000abc"},"term":2,"generation":3,"step":812,)"
      R"("reason":"killed by SIGKILL","figures":{"silence_ns":5},"details":{"cause":"exit"}})"
      "\n");
}

TEST(EventLog, NoNodeAndBadText_StillOneValidLine) {
  Note note;
  note.name = "generation_started";
  note.reason = "line\nbreak \xff quote\"";
  std::string line = FormatEvent(note, Term(1), Time{1}, 0);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  auto json = nlohmann::json::parse(line);
  EXPECT_TRUE(json["node"].is_null());
  EXPECT_TRUE(json["rank"].is_null());
}

TEST(EventLog, Reopened_AppendsAndCutsHalfALine) {
  TempDir dir;
  std::string path = dir.File(kEventsFile);
  {
    auto log = EventLog::Open(path);
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE((*log)->Append("{\"a\":1}\n").ok());
  }
  std::ofstream(path, std::ios::app) << "{\"half";
  auto log = EventLog::Open(path);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Append("{\"b\":2}\n").ok());
  EXPECT_EQ(ReadAll(path), "{\"a\":1}\n{\"b\":2}\n");
}

std::vector<std::string> Records(const std::string& path, Status* status) {
  std::vector<std::string> records;
  *status = ReadInputLog(path, [&](std::string_view payload) {
    records.emplace_back(payload);
    return true;
  });
  return records;
}

TEST(InputLog, Records_ComeBackAndATornTailIsIgnored) {
  TempDir dir;
  std::string path = dir.File(InputLogName(Term(3)));
  {
    auto log = InputLog::Create(path, 1u << 20);
    ASSERT_TRUE(log.ok());
    EXPECT_TRUE((*log)->Append("one"));
    EXPECT_TRUE((*log)->Append(""));
    EXPECT_TRUE((*log)->Append("three"));
  }
  Status status;
  EXPECT_EQ(Records(path, &status), (std::vector<std::string>{"one", "", "three"}));
  EXPECT_TRUE(status.ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);
  EXPECT_EQ(Records(path, &status), (std::vector<std::string>{"one", ""}));
  EXPECT_TRUE(status.ok());
}

TEST(InputLog, ChangedByte_IsCorrupt) {
  TempDir dir;
  std::string path = dir.File("inputs-1.log");
  {
    auto log = InputLog::Create(path, 1u << 20);
    (*log)->Append("payload");
  }
  std::string bytes = ReadAll(path);
  bytes[bytes.size() - 3] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  Status status;
  EXPECT_TRUE(Records(path, &status).empty());
  EXPECT_EQ(status.code(), Code::kCorrupt);
}

TEST(InputLog, Limit_TakesNoMore) {
  TempDir dir;
  auto log = InputLog::Create(dir.File("inputs-1.log"), 40);
  EXPECT_TRUE((*log)->Append("12345678"));
  EXPECT_FALSE((*log)->Append("123456789012345"));
}

TEST(InputLog, Files_AreListedByTermAsANumber) {
  TempDir dir;
  for (const char* name : {"inputs-10.log", "inputs-9.log", "inputs-x.log", "other"})
    std::ofstream(dir.File(name)) << "";
  EXPECT_EQ(InputLogs(dir.path), (std::vector<std::string>{dir.File("inputs-9.log"), dir.File("inputs-10.log")}));
}

}  // namespace
}  // namespace locum
