#include "adapters/sqlite/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "adapters/sqlite/directory.h"
#include "support/file_limit.h"

namespace locum {
namespace {

using ::testing::HasSubstr;

struct TempDir {
  TempDir() { LOCUM_CHECK(::mkdtemp(path.data()) != nullptr); }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string path = "/tmp/locum-store-XXXXXX";
};

PersistentState SomeState() {
  PersistentState s;
  s.spec.job = "20261201-101500-3f2a";
  s.spec.command = {"python3", "train.py", "", "--text=a b\n\xff"};
  s.spec.nodes = 1;
  s.spec.spares = 1;
  s.spec.workers_per_node = 2;
  s.spec.seed = UINT64_MAX;
  s.spec.timeouts.silence = std::chrono::milliseconds(1234);
  s.spec.limits = {UINT32_MAX, 7, std::chrono::minutes(3)};
  s.spec.worker_to_spare = true;
  s.adopts = Incarnation(UINT64_MAX - 1);
  s.term = Term(3);
  s.cluster = Incarnation(0xfedcba9876543210);
  s.phase = JobPhase::kRecovering;
  s.generation = Generation(5);
  s.recovery_step = Step(812);
  s.recovery_fixed = true;
  s.ranks = {{Rank(0), "node-0", "node-0", Slot(0), Incarnation(1)},
             {Rank(1), "node-1", "node-4", Slot(1), Incarnation(2)}};
  s.leaving = {{Rank(1), "node-1", "node-1", Slot(1), Incarnation(7)}};
  s.history = {{Generation(1), Step(0)}, {Generation(4), Step(kMaxStep)}};
  s.nodes = {{"node-0", NodeState::kHealthy, Role::kActive, Incarnation(UINT64_MAX), ""},
             {"node-1", NodeState::kQuarantined, Role::kNone, Incarnation(8), "it failed\n'3' times"}};
  s.exit_status = 3;
  s.reason = "why";
  return s;
}

void ExpectSame(const PersistentState& a, const PersistentState& b) {
  // Everything: what the core persists and the store forgets is lost at the next start.
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.spec.command, b.spec.command);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.leaving, b.leaving);
  EXPECT_EQ(a.history, b.history);
  EXPECT_EQ(a.nodes, b.nodes);
}

void ExecSql(const std::string& path, const char* sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

TEST(Store, New_HoldsNothing) {
  TempDir dir;
  auto store = Store::Open(dir.path);
  ASSERT_TRUE(store.ok()) << store.status().message();
  auto state = (*store)->Load();
  ASSERT_TRUE(state.ok()) << state.status().message();
  EXPECT_FALSE(state->has_value());
}

TEST(Store, SavedState_ComesBackAfterReopening) {
  TempDir dir;
  {
    auto store = Store::Open(dir.path);
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Save(PersistentState{}).ok());
    ASSERT_TRUE((*store)->Save(SomeState()).ok());
  }
  auto store = Store::Open(dir.path);
  ASSERT_TRUE(store.ok());
  auto state = (*store)->Load();
  ASSERT_TRUE(state.ok()) << state.status().message();
  ASSERT_TRUE(state->has_value());
  ExpectSame(**state, SomeState());
}

TEST(Store, Closed_LeavesOneFile) {
  TempDir dir;
  {
    auto store = Store::Open(dir.path);
    ASSERT_TRUE((*store)->Save(SomeState()).ok());
  }
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path)) ++files;
  EXPECT_EQ(files, 1);
}

TEST(Store, OwnerKilled_EveryReturnedSaveIsThereWhole) {
  TempDir dir;
  int pipe_fd[2];
  ASSERT_EQ(::pipe(pipe_fd), 0);
  pid_t child = ::fork();
  if (child == 0) {
    auto store = Store::Open(dir.path);
    if (!store.ok()) ::_exit(1);
    PersistentState state = SomeState();
    for (uint64_t term = 1;; ++term) {
      state.term = Term(term);
      state.generation = Generation(term);
      for (Placement& p : state.ranks) p.worker = Incarnation(term);
      if (!(*store)->Save(state).ok() || ::write(pipe_fd[1], &term, sizeof term) != sizeof term) ::_exit(1);
    }
  }
  ::close(pipe_fd[1]);
  uint64_t last = 0;
  for (int i = 0; i < 20; ++i) ASSERT_EQ(::read(pipe_fd[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (::read(pipe_fd[0], &last, sizeof last) == static_cast<ssize_t>(sizeof last)) {
  }
  ::close(pipe_fd[0]);
  auto store = Store::OpenToRead(dir.path);
  ASSERT_TRUE(store.ok()) << store.status().message();
  auto state = (*store)->Load();
  ASSERT_TRUE(state.ok() && state->has_value());
  EXPECT_GE((*state)->term.value, last);
  EXPECT_LE((*state)->term.value, last + 1);
  EXPECT_EQ((*state)->generation.value, (*state)->term.value);
  for (const Placement& p : (*state)->ranks) EXPECT_EQ(p.worker.value, (*state)->term.value);
}

TEST(Store, NoRoomAtAnyPlace_TheOldStateStaysWholeAndTheNextSaveWorks) {
  TempDir dir;
  auto store = Store::Open(dir.path);
  PersistentState state = SomeState();
  ASSERT_TRUE((*store)->Save(state).ok());
  int failures = 0;
  for (uint64_t i = 1; i < 40; ++i) {
    PersistentState next = state;
    next.term = Term(10 + i);
    for (uint32_t n = 0; n < 60; ++n) next.nodes.push_back({"n" + std::to_string(n) + "-" + std::to_string(i)});
    std::sort(next.nodes.begin(), next.nodes.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    Status status;
    {
      FileLimit limit(std::filesystem::file_size(dir.path + "/store.db-wal") + i * 700);
      status = (*store)->Save(next);
    }
    if (!status.ok()) {
      ++failures;
      EXPECT_THAT(status.message(), HasSubstr("store.db"));
      auto reader = Store::OpenToRead(dir.path);
      ASSERT_TRUE(reader.ok()) << reader.status().message();
      ExpectSame(*(*reader)->Load().value(), state);
      ASSERT_TRUE((*store)->Save(state).ok());
    }
    ExpectSame(*(*store)->Load().value(), status.ok() ? next : state);
    ASSERT_TRUE((*store)->Save(state).ok());
  }
  EXPECT_GT(failures, 3);
}

TEST(Store, FileDeletedWhileOpen_TheNextSaveMakesItAgain) {
  TempDir dir;
  auto store = Store::Open(dir.path);
  ASSERT_TRUE((*store)->Save(SomeState()).ok());
  for (const char* name : {"store.db", "store.db-wal", "store.db-shm"}) std::filesystem::remove(dir.path + "/" + name);
  PersistentState next = SomeState();
  next.generation = Generation(9);
  Status saved = (*store)->Save(next);
  ASSERT_TRUE(saved.ok()) << saved.message();
  store->reset();
  auto again = Store::Open(dir.path);
  ASSERT_TRUE(again.ok()) << again.status().message();
  ExpectSame(*(*again)->Load().value(), next);
}

TEST(Directory, NoRoom_IsRefusedWithWhereAndWhatToDo) {
  TempDir dir;
  EXPECT_TRUE(CheckRoom(dir.path).ok());
  Status status;
  {
    FileLimit limit(kRoomBytes / 2);
    status = CheckRoom(dir.path);
  }
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(dir.path));
  EXPECT_THAT(status.message(), HasSubstr("is full: it has not the 8 MiB"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path));
}

TEST(Store, OtherVersion_IsRefusedAndNotChanged) {
  TempDir dir;
  std::string path = dir.path + "/" + kStoreFile;
  { ASSERT_TRUE(Store::Open(dir.path).ok()); }
  ExecSql(path, "PRAGMA user_version=7");
  auto store = Store::Open(dir.path);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), Code::kRefused);
  EXPECT_THAT(store.status().message(), HasSubstr("has store version 7; this locum (0.1.0) reads version 2"));
}

TEST(Store, OtherFile_IsRefused) {
  TempDir dir;
  std::ofstream(dir.path + "/" + kStoreFile) << "this is not a database, it is a text that is long enough";
  auto store = Store::Open(dir.path);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr("is not a Locum store"));
  TempDir other;
  ExecSql(other.path + "/" + kStoreFile, "CREATE TABLE t (x)");
  store = Store::Open(other.path);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr("is not a Locum store"));
}

TEST(Store, ImpossibleValues_AreCorrupt) {
  for (const char* sql : {"UPDATE job SET phase='dancing'", "UPDATE job SET generation=-1", "UPDATE nodes SET role='x'",
                          "UPDATE ranks SET slot=-3", "DELETE FROM timeouts WHERE name='hang'", "DELETE FROM limits",
                          "UPDATE ranks SET node='node-9'", "UPDATE job SET workers_per_node=0",
                          "UPDATE timeouts SET ns=9223372036854775807", "DELETE FROM ranks WHERE rank=1"}) {
    TempDir dir;
    {
      auto store = Store::Open(dir.path);
      ASSERT_TRUE((*store)->Save(SomeState()).ok());
    }
    ExecSql(dir.path + "/" + kStoreFile, sql);
    auto store = Store::Open(dir.path);
    ASSERT_TRUE(store.ok());
    auto state = (*store)->Load();
    ASSERT_FALSE(state.ok()) << sql;
    EXPECT_EQ(state.status().code(), Code::kCorrupt) << sql;
  }
}

TEST(Store, DamagedPages_AreCorruptAndNoFaultOfTheDisk) {
  TempDir dir;
  const std::string path = dir.path + "/" + kStoreFile;
  {
    auto store = Store::Open(dir.path);
    ASSERT_TRUE((*store)->Save(SomeState()).ok());
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);  // behind the schema
    file << std::string(std::filesystem::file_size(path) - 4096, '\x7f');
  }
  auto store = Store::Open(dir.path);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->Load().status().code(), Code::kCorrupt) << (*store)->Load().status().message();
}

TEST(Store, ReadBesideItsOwner_SeesTheNewestState) {
  TempDir dir;
  EXPECT_EQ(Store::OpenToRead(dir.path).status().code(), Code::kUnavailable);
  auto owner = Store::Open(dir.path);
  ASSERT_TRUE((*owner)->Save(SomeState()).ok());
  auto reader = Store::OpenToRead(dir.path);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  ExpectSame(*(*reader)->Load().value(), SomeState());
  PersistentState next = SomeState();
  next.phase = JobPhase::kFinished;
  ASSERT_TRUE((*owner)->Save(next).ok());
  ExpectSame(*(*reader)->Load().value(), next);
}

TEST(Directory, SecondHolder_IsRefusedUntilTheFirstLetsGo) {
  TempDir dir;
  {
    auto first = DirectoryLock::Take(dir.path);
    ASSERT_TRUE(first.ok());
    auto second = DirectoryLock::Take(dir.path);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), Code::kRefused);
  }
  EXPECT_TRUE(DirectoryLock::Take(dir.path).ok());
}

TEST(Directory, NetworkFilesystems_AreNamed) {
  for (long magic :
       {0x6969l, 0x517Bl, 0xFF534D42l, 0xFE534D42l, 0x01021997l, 0x00C36400l, 0x0BD00BD0l, 0x47504653l, 0x65735546l,
        0x73757245l, 0x5346414Fl, 0x6B414653l, 0x7461636Fl, 0x564Cl, 0x01161970l, 0x19830326l}) {
    EXPECT_NE(UnsafeFilesystem(magic), nullptr) << magic;
  }
  EXPECT_STREQ(UnsafeFilesystem(0x73757245), "Coda");
  EXPECT_EQ(UnsafeFilesystem(0xEF53), nullptr);      // ext4
  EXPECT_EQ(UnsafeFilesystem(0x01021994), nullptr);  // tmpfs
  EXPECT_EQ(UnsafeFilesystem(0x58465342), nullptr);  // xfs
  EXPECT_EQ(UnsafeFilesystem(0x794C7630), nullptr);  // overlay, of containers
}

}  // namespace
}  // namespace locum
