#include "adapters/eventlog/event_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "adapters/eventlog/input_log.h"
#include "support/file_limit.h"

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
    EXPECT_TRUE((*log)->Append("one").ok());
    EXPECT_TRUE((*log)->Append("").ok());
    EXPECT_TRUE((*log)->Append("three").ok());
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
    ASSERT_TRUE((*log)->Append("payload").ok());
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
  EXPECT_TRUE((*log)->Append("12345678").ok());
  EXPECT_EQ((*log)->Append("123456789012345").code(), Code::kRefused);
}

TEST(InputLog, Files_AreListedByTermAsANumber) {
  TempDir dir;
  for (const char* name :
       {"inputs-10.log", "inputs-9.10.log", "inputs-9.2.log", "inputs-9.log", "inputs-x.log", "inputs-9..log", "other"})
    std::ofstream(dir.File(name)) << "";
  EXPECT_EQ(InputLogs(dir.path), (std::vector<std::string>{dir.File("inputs-9.log"), dir.File("inputs-9.2.log"),
                                                           dir.File("inputs-9.10.log"), dir.File("inputs-10.log")}));
}

TEST(InputLog, TermThatWasThereBefore_GetsAFileOfItsOwn) {
  TempDir dir;
  for (const char* text : {"first", "second"}) {
    auto log = InputLog::CreateIn(dir.path, Term(1), 1u << 20);
    ASSERT_TRUE(log.ok()) << log.status().message();
    ASSERT_TRUE((*log)->Append(text).ok());
  }
  Status status;
  EXPECT_EQ(Records(dir.File("inputs-1.log"), &status), std::vector<std::string>{"first"});
  EXPECT_EQ(Records(dir.File("inputs-1.2.log"), &status), std::vector<std::string>{"second"});
}

TEST(EventLog, NoRoom_LinesWaitAndComeInOrderWithoutHalves) {
  TempDir dir;
  std::string path = dir.File(kEventsFile);
  auto log = EventLog::Open(path);
  ASSERT_TRUE((*log)->Append("{\"a\":1}\n").ok());
  {
    FileLimit limit(12);
    EXPECT_FALSE((*log)->Append("{\"b\":2}\n").ok());  // half of it fits
    EXPECT_FALSE((*log)->Append("{}\n").ok());         // it would fit, and is not the next one
    EXPECT_EQ((*log)->waiting(), 2u);
    EXPECT_EQ(ReadAll(path), "{\"a\":1}\n");
  }
  EXPECT_TRUE((*log)->Flush().ok());
  EXPECT_EQ(ReadAll(path), "{\"a\":1}\n{\"b\":2}\n{}\n");
}

TEST(EventLog, NoRoomForLong_OldestAreDroppedAndThatIsSaid) {
  TempDir dir;
  std::string path = dir.File(kEventsFile);
  auto log = EventLog::Open(path);
  const auto line = [](size_t i) {
    Note note;
    note.name = "event-" + std::to_string(i);
    note.generation = Generation(4);
    return FormatEvent(note, Term(2), Time{1}, 0);
  };
  {
    FileLimit limit(0);
    for (size_t i = 0; i < kMaxWaitingLines + 5; ++i) EXPECT_FALSE((*log)->Append(line(i)).ok());
    EXPECT_EQ((*log)->waiting(), kMaxWaitingLines);
  }
  ASSERT_TRUE((*log)->Append(line(kMaxWaitingLines + 5)).ok());
  std::istringstream lines(ReadAll(path));
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  auto json = nlohmann::json::parse(first);
  EXPECT_EQ(json["name"], "events_dropped");
  EXPECT_EQ(json["figures"]["events"], 5);
  EXPECT_EQ(json["generation"], 4);
  EXPECT_EQ(nlohmann::json::parse(second)["name"], "event-5");
}

TEST(InputLog, NoRoom_SaysSoAndTakesNoMoreAndWhatIsThereIsReadable) {
  TempDir dir;
  std::string path = dir.File("inputs-1.log");
  auto log = InputLog::Create(path, 1u << 20);
  ASSERT_TRUE((*log)->Append("one").ok());
  ASSERT_TRUE((*log)->Flush().ok());
  {
    FileLimit limit((*log)->size() + 5);
    ASSERT_TRUE((*log)->Append("two").ok());
    EXPECT_EQ((*log)->Flush().message().find("cannot write"), 0u);
  }
  EXPECT_FALSE((*log)->Append("three").ok());  // what follows a hole cannot be replayed
  EXPECT_FALSE((*log)->Flush().ok());
  Status status;
  EXPECT_EQ(Records(path, &status), std::vector<std::string>{"one"});
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace locum
