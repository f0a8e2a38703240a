// The command's parts that can be tried without starting anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "adapters/eventlog/input_log.h"
#include "adapters/grpc/convert.h"
#include "cli/commands.h"
#include "cli/event_text.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/net.h"
#include "cli/rank_output.h"
#include "cli/replay.h"
#include "cli/start_dir.h"
#include "cli/status_json.h"

namespace locum {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct TempDir {
  TempDir() { LOCUM_CHECK(::mkdtemp(path.data()) != nullptr); }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string File(const std::string& name) const { return path + "/" + name; }
  std::string path = "/tmp/locum-cli-XXXXXX";
};

void Append(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }

TEST(HostPort, GoodAndBad_AreTold) {
  auto v4 = ParseHostPort("10.0.0.1:7000", "--listen");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "10.0.0.1");
  EXPECT_EQ(v4->port, 7000);
  auto v6 = ParseHostPort("[::1]:7", "--listen");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(FormatHostPort(v6->host, v6->port), "[::1]:7");
  for (const char* bad : {"", "host", "host:", ":7", "host:x", "host:70000", "host:-1", "::1:7", "host:7 "}) {
    EXPECT_FALSE(ParseHostPort(bad, "--listen").ok()) << bad;
  }
}

TEST(Interface, NamedOrTowardsAPeer_GivesANumericAddress) {
  auto lo = InterfaceAddress("lo");
  ASSERT_TRUE(lo.ok()) << lo.status().message();
  EXPECT_TRUE(IsLoopback(*lo));
  auto none = InterfaceAddress("no-such-if0");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("there is no interface 'no-such-if0'; there are "));
  auto own = LocalAddressTowards({"127.0.0.1", 9});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(*own, "127.0.0.1");
}

TEST(Token, MadeOnce_IsKeptAndPrivate) {
  TempDir dir;
  ::unsetenv(kTokenVariable);
  auto first = EnsureToken("", dir.path);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->size(), 48u);
  EXPECT_EQ(*EnsureToken("", dir.path), *first);
  EXPECT_EQ(*FindToken("", dir.path), *first);
  struct stat info {};
  ASSERT_EQ(::stat(dir.File(kTokenFile).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(Token, GivenByFile_ComesFirstAndIsChecked) {
  TempDir dir;
  ::unsetenv(kTokenVariable);
  Append(dir.File("mine"), "my-token\n");
  EXPECT_EQ(*EnsureToken(dir.File("mine"), dir.path), "my-token");
  EXPECT_EQ(*FindToken("", dir.path), "my-token");
  Append(dir.File("bad"), "two words\n");
  EXPECT_THAT(FindToken(dir.File("bad"), "").status().message(), HasSubstr("printable ASCII"));
  Append(dir.File("empty"), "\n");
  EXPECT_THAT(FindToken(dir.File("empty"), "").status().message(), HasSubstr("holds no token"));
  EXPECT_FALSE(EnsureToken(dir.File("absent"), dir.path).ok());
  EXPECT_FALSE(FindToken("", "").ok());
}

TEST(StartDir, RootDirectory_IsRefused) {
  StartDir start;
  EXPECT_EQ(start.Make("/", "--dir").message(), "--dir: / is no directory for a job or a node; name one of its own");
}

TEST(StartDir, FailedStart_TakesAwayOnlyWhatIsNewAndOurs) {
  TempDir dir;
  const std::string job = dir.File("a/b");
  {
    StartDir start;
    ASSERT_TRUE(start.Make(job, "--dir").ok());
    Append(job + "/lock", "");
    start.Guard(IsCoordinatorFile, "lock");
    Append(job + "/store.db", "");
    Append(job + "/store.db-wal", "");
  }
  EXPECT_FALSE(std::filesystem::exists(dir.File("a")));
  std::filesystem::create_directories(job);
  Append(job + "/token", "mine");
  {
    StartDir start;
    ASSERT_TRUE(start.Make(job, "--dir").ok());
    Append(job + "/lock", "");
    start.Guard(IsCoordinatorFile, "lock");
    Append(job + "/events.jsonl", "");
    Append(job + "/of_a_person", "");
    Append(job + "/agent.log", "");
  }
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(job)) left.insert(entry.path().filename());
  EXPECT_THAT(left, ElementsAre("agent.log", "of_a_person", "token"));
  {
    // Refused by the lock: what is there is another one's.
    StartDir start;
    ASSERT_TRUE(start.Make(dir.File("c"), "--dir").ok());
    Append(dir.File("c/store.db"), "");
  }
  EXPECT_TRUE(std::filesystem::exists(dir.File("c/store.db")));
  {
    StartDir start;
    ASSERT_TRUE(start.Make(dir.File("d"), "--dir").ok());
    start.Guard(IsCoordinatorFile, "lock");
    Append(dir.File("d/store.db"), "");
    start.Keep();
  }
  EXPECT_TRUE(std::filesystem::exists(dir.File("d/store.db")));
}

TEST(Replay, LogOfAnotherLocum_IsRefusedNotCompared) {
  TempDir dir;
  for (const char* version : {"", "0.0.9"}) {
    JobSpec spec{"j", {"true"}, 1, 0, 1, 0, Timeouts{}};
    wire::InputRecord record;
    *record.mutable_start() = ToWire(spec, Term(1), Incarnation(1), nullptr);
    record.mutable_start()->set_version(version);
    {
      auto log = InputLog::Create(dir.File(InputLogName(Term(1))), 1u << 20);
      ASSERT_TRUE(log.ok());
      ASSERT_TRUE((*log)->Append(record.SerializeAsString()).ok());
    }
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(ReplayMain(dir.path, false), kExitUsage);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("Replay it with the locum that wrote it"));
  }
}

TEST(Replay, TimeThatGoesBack_IsAnError) {
  Replay replay;
  wire::InputRecord record;
  *record.mutable_start() = ToWire(JobSpec{"j", {"true"}}, Term(1), Incarnation(1), nullptr);
  record.mutable_start()->set_version(kVersion);
  ASSERT_TRUE(replay.Take(record.SerializeAsString()));
  record.mutable_input()->mutable_event()->mutable_tick();
  for (const int64_t at : {int64_t{-1}, INT64_MAX}) {
    record.mutable_input()->set_now_ns(at);
    EXPECT_FALSE(replay.Take(record.SerializeAsString()));
    EXPECT_THAT(replay.error, HasSubstr("does not follow the one before"));
  }
}

TEST(FindProgram, AbsentAndNotExecutable_AreToldApart) {
  TempDir dir;
  EXPECT_TRUE(FindProgram("sh").ok());
  EXPECT_EQ(FindProgram("no-such-program").status().code(), Code::kInvalid);
  EXPECT_EQ(FindProgram(dir.File("absent")).status().code(), Code::kInvalid);
  Append(dir.File("text"), "x");
  EXPECT_EQ(FindProgram(dir.File("text")).status().code(), Code::kRefused);
  EXPECT_EQ(FindProgram(dir.path).status().code(), Code::kRefused);
}

TEST(CoordinatorFile, WrittenAndDamaged_AreReadAsSuch) {
  TempDir dir;
  EXPECT_EQ(ReadCoordinatorFile(dir.path).status().code(), Code::kUnavailable);
  ASSERT_TRUE(WriteCoordinatorFile(dir.path, {"127.0.0.1:5", 42, "job", "0.1.0"}).ok());
  auto file = ReadCoordinatorFile(dir.path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->address, "127.0.0.1:5");
  EXPECT_EQ(file->pid, 42);
  for (const char* text : {"{\"address\":7}", "{\"address\":\"a:1\",\"pid\":1e300,\"job\":\"j\",\"version\":\"0\"}"}) {
    ASSERT_TRUE(WriteFileAtomically(dir.File(kCoordinatorFile), text, 0644).ok());
    EXPECT_EQ(ReadCoordinatorFile(dir.path).status().code(), Code::kCorrupt);
  }
}

TEST(RankOutput, RankMovesBetweenLogs_EachByteIsPassedOnce) {
  TempDir dir;
  std::string passed;
  RankOutput output([&](std::string_view bytes) { passed += bytes; });
  output.Pump();
  Append(dir.File("a"), "setup\n");
  output.Holder(dir.File("a"), 6);
  Append(dir.File("a"), "a1\n");
  output.Pump();
  output.Holder(dir.File("a"), 9);  // the same worker got the rank again: nothing is skipped
  Append(dir.File("a"), "a2\n");
  Append(dir.File("b"), "warming up\n");
  output.Holder(dir.File("b"), 11);
  Append(dir.File("a"), "a goes on without the rank\n");
  Append(dir.File("b"), "b1\n");
  output.Pump();
  output.Holder(dir.File("a"), 9);  // back, with an offset that was passed already
  output.Pump();
  output.Pump();
  EXPECT_EQ(passed, "a1\na2\nb1\na goes on without the rank\n");
}

ClusterView SomeView() {
  ClusterView view;
  view.job = "j";
  view.phase = JobPhase::kRunning;
  view.step = Step(812);
  view.generation = Generation(3);
  view.spares = 1;
  view.has_loss = true;
  view.loss = 2.5;
  NodeView& node = view.nodes.emplace_back();
  node.name = "node-0";
  node.state = NodeState::kHealthy;
  node.role = Role::kActive;
  node.address = "127.0.0.1";
  node.keeper_pid = 10;
  node.agent_pid = 11;
  node.usage.cpu_permille = 123;
  node.usage.memory_used = 1;
  node.usage.memory_total = 3;
  node.usage.net_received_per_s = 1500;
  node.usage.net_sent_per_s = 500;
  view.ranks.push_back({Rank(0), "node-0", Slot(0), Incarnation(7), 12, Step(813), "/l", "/s", 5});
  return view;
}

TEST(StatusJson, Names_AreThePromisedOnes) {
  Json json = StatusJson(SomeView());
  EXPECT_EQ(json["job"]["state"], "running");
  EXPECT_EQ(json["job"]["step"], 812);
  EXPECT_EQ(json["job"]["generation"], 3);
  EXPECT_EQ(json["job"]["spares"], 1);
  const Json& node = json["nodes"][0];
  EXPECT_EQ(node["name"], "node-0");
  EXPECT_EQ(node["state"], "healthy");
  EXPECT_EQ(node["role"], "active");
  EXPECT_EQ(node["address"], "127.0.0.1");
  EXPECT_EQ(node["keeper_pid"], 10);
  EXPECT_EQ(node["agent_pid"], 11);
  EXPECT_EQ(node["usage"]["cpu"], 12.3);
  EXPECT_EQ(node["usage"]["memory"], 33.3);
  EXPECT_EQ(node["usage"]["disk"], 0);
  EXPECT_EQ(node["usage"]["network"], 2000);
  const Json& rank = json["ranks"][0];
  EXPECT_EQ(rank["rank"], 0);
  EXPECT_EQ(rank["node"], "node-0");
  EXPECT_EQ(rank["worker_pid"], 12);
  EXPECT_EQ(rank["step"], 813);
}

TEST(StatusJson, WithoutCoordinator_StoreDecidesAndTheLastViewFillsIn) {
  PersistentState stored;
  stored.spec.job = "j";
  stored.phase = JobPhase::kFinished;
  stored.generation = Generation(4);
  Json json = StatusJson(stored, StatusJson(SomeView()));
  EXPECT_EQ(json["job"]["state"], "finished");
  EXPECT_EQ(json["job"]["generation"], 4);
  EXPECT_EQ(json["job"]["step"], 812);
  EXPECT_EQ(json["job"]["exit_status"], 0);
  EXPECT_EQ(json["job"]["coordinator"], "not running");
  EXPECT_EQ(json["ranks"][0]["worker_pid"], 12);
  // Of another job, damaged, or absent: the store alone.
  stored.spec.job = "other";
  for (const Json& last : {StatusJson(SomeView()), Json(), Json::parse("{\"job\":3}"), Json::parse("[1]")}) {
    EXPECT_EQ(StatusJson(stored, last)["job"]["step"], 0);
    EXPECT_NE(StatusTable(StatusJson(stored, last)), "");
  }
  // Of this job, and not what a coordinator writes.
  stored.spec.job = "j";
  for (const char* path : {"/job/state", "/job/loss", "/nodes/0", "/nodes/0/usage", "/nodes/0/reason", "/ranks/0"}) {
    Json last = StatusJson(SomeView());
    last[Json::json_pointer(path)] = Json::array({3});
    EXPECT_EQ(StatusJson(stored, last)["job"]["step"], 0) << path;
  }
}

TEST(RankOutput, StatusThatIsNone_IsNotFollowed) {
  RankOutput output([](std::string_view) { ADD_FAILURE(); });
  for (const char* rank :
       {R"({"worker":1,"rank":0,"log":7})", R"({"worker":1,"rank":0,"node":"n","log":"l","log_offset":-1})"}) {
    output.FollowLast(
        Json::parse(R"({"nodes":[{"workers":[{"worker":1,"rank":0}]}],"ranks":[)" + std::string(rank) + "]}"), "/");
  }
}

TEST(StatusTable, Rows_AreAligned) {
  std::string table = StatusTable(StatusJson(SomeView()));
  EXPECT_THAT(table, HasSubstr("job j: running, step 812, loss 2.5, generation 3, spares 1\n"));
  EXPECT_THAT(table, HasSubstr("NODE    STATE    ROLE    RANKS"));
  EXPECT_THAT(table, HasSubstr("node-0  healthy  active  0      127.0.0.1  12.3  33.3  0.0    2.0 kB/s"));
}

TEST(EventText, TimeThatIsNone_IsShownAsItIs) {
  EXPECT_EQ(EventText("{\"name\":\"x\",\"time\":\"-2147483648-1-1T1:1:1.1\"}"), "-2147483648-1-1T1:1:1.1  x");
}

TEST(EventText, End_IsToldByItsStatus) {
  const std::string other = "{\"name\":\"node_joined\",\"reason\":\"\\\"name\\\":\\\"job_failed\\\"\"}\n";
  EXPECT_EQ(ToldEnd(other), std::nullopt);
  EXPECT_EQ(ToldEnd(other + "{\"name\":\"job_failed\",\"figures\":{\"exit_status\":7}}\n" + other), 7);
  EXPECT_EQ(ToldEnd("{\"name\":\"job_finished\",\"figures\":{\"exit_status\":0}}\n"), 0);
}

TEST(StatusTable, StoppedJob_SaysSoAndWhatTakesItUp) {
  PersistentState stored;
  stored.spec.job = "j";
  stored.phase = JobPhase::kRunning;
  stored.reason = "stopped by SIGINT";
  stored.nodes.push_back({"node-0", NodeState::kHealthy, Role::kSpare, Incarnation(1), ""});
  Json json = StatusJson(stored, Json());
  EXPECT_EQ(json["job"]["spares"], 1) << "as many as the nodes' roles say";
  std::string table = StatusTable(json, "some/dir");
  EXPECT_THAT(table, HasSubstr("job j: stopped by SIGINT while running, step 0"));
  EXPECT_THAT(table, HasSubstr("'locum coordinator --dir some/dir' takes the job up again"));
  stored.phase = JobPhase::kFailed;
  stored.reason = "stopped by a fault";
  table = StatusTable(StatusJson(stored, Json()), "some/dir");
  EXPECT_THAT(table, HasSubstr("job j: failed, step 0"));
  EXPECT_THAT(table, Not(HasSubstr("takes the job up")));
}

TEST(EventTeller, AfterTheEnd_WhatLeavesIsNoFault) {
  const std::string lost = R"({"name":"node_stream_lost","node":"n","reason":"stream closed"})";
  const std::string exited = R"({"name":"worker_exited","node":"n","reason":"killed by SIGTERM"})";
  EventTeller teller;
  EXPECT_THAT(teller.Text(lost), HasSubstr("stream closed"));
  EXPECT_THAT(teller.Text(exited), HasSubstr("killed by SIGTERM"));
  EXPECT_THAT(teller.Text(R"({"name":"job_finished"})"), HasSubstr("job_finished"));
  EXPECT_EQ(teller.Text(lost), "");
  EXPECT_THAT(teller.Text(exited), HasSubstr("n: ended at the job's end"));
  EXPECT_THAT(teller.Text(R"({"name":"worker_exited","node":"n","reason":"killed by SIGSEGV"})"),
              HasSubstr("killed by SIGSEGV"));
  EXPECT_EQ(teller.Text("text"), "text");
  EXPECT_EQ(teller.Text(R"({"name":"x","time":3,"reason":[]})"), "  x");
}

TEST(EventText, Line_IsReadable) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(EventText(R"({"time":"2026-12-01T10:15:00.123456Z","name":"state_migrated","node":"node-4","rank":1,)"
                      R"("generation":2,"step":812,"reason":"","figures":{"bytes":104857600,"duration_ns":61500000}})"),
            "10:15:00.123  state_migrated  node-4, rank 1, generation 2, step 812 (bytes 104.9 MB, duration 61.5 ms)");
  EXPECT_EQ(EventText(R"({"time":"2026-12-01T10:15:00.123456Z","name":"node_state","node":"n","rank":null,)"
                      R"("generation":0,"step":0,"reason":"two\nlines","details":{"state":"failed","hash":"x"}})"),
            "10:15:00.123  node_state  n: two lines, state failed");
  for (const char* other :
       {"", "text", "{}", "[1]", "{\"name\":3}", "{\"name\":\"x\",\"figures\":7,\"generation\":\"y\"}"}) {
    EventText(other);
  }
}

}  // namespace
}  // namespace locum
