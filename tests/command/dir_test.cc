// DIR: what may be in it, what is read from it, and what a start that fails leaves of it.
#include <sqlite3.h>
#include <sys/mount.h>

#include "command.h"

namespace locum::command {
namespace {

TEST_F(Command, ForeignOrOtherStore_IsRefused) {
  std::filesystem::create_directory(Path("d"));
  std::ofstream(Path("d/store.db")) << "this is a text that is no database at all";
  Expect({"coordinator", "--dir", "d", "--", "true"}, 2, "is not a Locum store");
  Expect({"run", "--dir", "d", "--", "true"}, 2, "is not a Locum store");
  EXPECT_EQ(ReadAll(Path("d/store.db")), "this is a text that is no database at all");
  Expect({"status", "--dir", "d"}, 2, "is not a Locum store; choose another --dir");
  Expect({"events", "--dir", "d"}, 2, "is not a Locum store; choose another --dir");
  Expect({"failback", "n", "--dir", "d"}, 2, "is not a Locum store; choose another --dir");
  Expect({"replay", "d"}, 2, "is not a Locum store; choose another --dir");
  std::filesystem::create_directories(Path("e/store.db"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", "--dir", "e", "--", "true"},
                                                {"coordinator", "--dir", "e", "--", "true"},
                                                {"status", "--dir", "e"},
                                                {"events", "--dir", "e"},
                                                {"replay", "e"}}) {
    Expect(words, 2, "is not a Locum store; choose another --dir");
  }
}

TEST_F(Command, StoreOfAnotherVersion_IsRefusedByAll) {
  Process first(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  Address("d");
  first.Kill(SIGTERM);
  first.Wait();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(Path("d/store.db").c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", "--dir", "d", "--", "true"},
                                                {"coordinator", "--dir", "d"},
                                                {"status", "--dir", "d"},
                                                {"events", "--dir", "d"},
                                                {"failback", "n", "--dir", "d"},
                                                {"replay", "d"}}) {
    Expect(words, 2, "has store version 99; this locum (");
  }
}

TEST_F(Command, ReplayOfForeignLogs_IsRefused) {
  Expect({"replay", "absent"}, 2, "absent does not exist");
  std::filesystem::create_directory(Path("d"));
  Expect({"replay", "d"}, 2, "d holds no input logs");
  std::ofstream(Path("d/inputs-1.log")) << "LOCINPT9 and more";
  Expect({"replay", "d"}, 2,
         "d/inputs-1.log: this is no input log, or one of another version; replay it with the locum");
}

TEST_F(Command, DirOfOthers_IsRefusedAndLeftAlone) {
  std::filesystem::create_directory(Path("d"));
  std::ofstream(Path("d/thesis.tex")) << "x";
  std::ofstream(Path("d/data.csv")) << "x";
  std::ofstream(Path("c.toml")) << "[job]\ndir = \"d\"\n";
  const std::string text =
      Path("d") + " holds files that are not Locum's (data.csv, thesis.tex); name a new or an empty";
  Expect({"run", "--dir", "d", "--", "true"}, 2, "--dir: " + text);
  Expect({"coordinator", "--dir", "d", "--", "true"}, 2, "--dir: " + text);
  Expect({"run", "--config", "c.toml", "--", "true"}, 2, "c.toml:2: " + text);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Path("d")), {}), 2);
  // A token, settings and a file system's own directory may be there.
  std::filesystem::create_directories(Path("e/lost+found"));
  std::ofstream(Path("e/token")) << "mine\n";
  std::ofstream(Path("e/locum.toml")) << "";
  Process good(dir_, {"coordinator", "--dir", "e", "--", "sleep", "1"});
  Address("e");
  good.Kill(SIGTERM);
  EXPECT_EQ(good.Wait().status, 143);
}

TEST_F(Command, StartThatFails_LeavesNothingOfItsOwn) {
  Process first(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  const std::string address = Address("d");
  const std::vector<std::string> before = Left();
  Expect({"coordinator", "--dir", "e", "--listen", address, "--", "true"}, 2, "the port is in use");
  Expect({"coordinator", "--dir", "e/f/g", "--listen", address, "--", "true"}, 2, "the port is in use");
  Expect({"coordinator", "--listen", address, "--", "true"}, 2, "the port is in use");
  Expect({"coordinator", "--dir", "e", "--listen", "203.0.113.1:5", "--", "true"}, 2, "cannot listen on 203.0.113.1:5");
  Expect({"coordinator", "--dir", "e", "--listen", "nowhere:5", "--", "true"}, 2, "is not a numeric address");
  Expect({"coordinator", "--dir", "e", "--token-file", "absent", "--", "true"}, 2, "absent does not exist");
  std::ofstream(Path("c.toml")) << "[coordinator]\ntoken_file = \"absent\"\n";
  Expect({"run", "--config", "c.toml", "--", "true"}, 2, "absent does not exist");
  std::filesystem::remove(Path("c.toml"));
  EXPECT_EQ(Left(), before);
  // What was there stays, and so does what belongs to another coordinator.
  std::filesystem::create_directory(Path("h"));
  std::ofstream(Path("h/token")) << "mine\n";
  Expect({"coordinator", "--dir", "h", "--listen", address, "--", "true"}, 2, "the port is in use");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Path("h")), {}), 1);
  EXPECT_EQ(ReadAll(Path("h/token")), "mine\n");
  Expect({"coordinator", "--dir", "d", "--listen", address, "--", "true"}, 2, "is in use by a running coordinator");
  for (const char* name : {"store.db", "token", "lock", "events.jsonl", "coordinator.json"}) {
    EXPECT_TRUE(std::filesystem::exists(Path("d/" + std::string(name)))) << name;
  }
  first.Kill(SIGTERM);
  EXPECT_EQ(first.Wait().status, 143);
  // A job that is taken up in vain can be taken up again.
  Expect({"coordinator", "--dir", "d", "--listen", "203.0.113.1:5"}, 2, "cannot listen on 203.0.113.1:5");
  EXPECT_FALSE(std::filesystem::exists(Path("d/inputs-2.log")));
  EXPECT_EQ(Run({"status", "--dir", "d"}).status, 0);
}

TEST_F(Command, RunThatCannotStart_LeavesNothingAndNoLatest) {
  // No file may grow as far as a new store does: the coordinator cannot start.
  Process run(dir_, {"run", "--dir", "d", "--", "true"}, {}, 9u << 10);
  const Outcome outcome = run.Wait();
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("free space in " + Path("d") + " (or mend its disk), or choose another --dir"));
  Process second(dir_, {"run", "--", "true"}, {}, 9u << 10);
  EXPECT_EQ(second.Wait().status, 1);
  EXPECT_TRUE(Left().empty()) << Left()[0];
}

TEST_F(Command, StartOnAFullDisk_SaysSoAndLeavesNothing) {
  std::filesystem::create_directory(Path("disk"));
  if (::mount("none", Path("disk").c_str(), "tmpfs", 0, "size=512k") != 0) {
    GTEST_SKIP() << "a small file system cannot be mounted here";
  }
  for (const char* word : {"run", "coordinator"}) {
    Expect({word, "--dir", "disk/d", "--", "true"}, 1, "the disk of " + Path("disk/d") + " is full");
  }
  EXPECT_TRUE(std::filesystem::is_empty(Path("disk")));
  EXPECT_EQ(::umount(Path("disk").c_str()), 0);
}

TEST_F(Command, TwoRunsAtOnceInANewDir_OneIsRefusedAndTouchesNothing) {
  const std::vector<std::string> words = {"run", "--dir", "d", "--", LOCUM_MINIMAL, "--steps", "20"};
  for (int round = 0; round < 3; ++round) {
    Process a(dir_, words), b(dir_, words);
    Outcome won = a.Wait(), lost = b.Wait();
    if (won.status != 0) std::swap(won, lost);
    EXPECT_EQ(won.status, 0) << won.err;
    EXPECT_THAT(won.out, HasSubstr("final step=20"));
    EXPECT_EQ(lost.status, 2) << lost.err;
    EXPECT_EQ(lost.out, "");
    EXPECT_EQ(std::count(lost.err.begin(), lost.err.end(), '\n'), 1) << lost.err;
    // The other may also have come when all was over.
    EXPECT_THAT(lost.err, ::testing::AnyOf(HasSubstr("is in use by"), HasSubstr("which has finished")));
    std::filesystem::remove_all(Path("d"));
  }
}

TEST_F(Command, RunInADirWhoseRunIsBetweenCoordinators_IsRefused) {
  Process run(dir_, {"run", "--dir", "d", "--", "sleep", "1000"});
  AwaitEvent("d", "node_joined");
  // While its coordinator does not live, the run itself holds DIR.
  const Json coordinator = Json::parse(ReadAll(Path("d/coordinator.json")));
  run.Kill(SIGSTOP);
  ::kill(coordinator["pid"].get<pid_t>(), SIGKILL);
  Expect({"run", "--dir", "d", "--", "true"}, 2, "is in use by a running coordinator or locum run");
  Expect({"coordinator", "--dir", "d"}, 2, "is in use by a running coordinator or locum run");
  run.Kill(SIGCONT);
  run.Kill(SIGTERM);
  EXPECT_EQ(run.Wait().status, 143);
}

TEST_F(Command, DirWhoseStoreIsLost_IsForACoordinatorOnly) {
  Process first(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  Address("d");
  first.Kill(SIGTERM);
  first.Wait();
  std::filesystem::remove(Path("d/store.db"));
  Expect({"run", "--dir", "d", "--", "true"}, 2, "holds the history of a job (events.jsonl) whose store is lost");
  std::ofstream(Path("d/store.db")).close();
  Expect({"run", "--dir", "d", "--", "true"}, 2, "holds the history of a job (events.jsonl) whose store is lost");
  std::filesystem::remove(Path("d/store.db"));
  Process second(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  Address("d");
  second.Kill(SIGTERM);
  EXPECT_EQ(second.Wait().status, 143);
}

TEST_F(Command, DirWithTooLongAPath_IsRefusedWithTheLimit) {
  const std::string part(240, 'x');
  const std::string fits = part + "/" + std::string(495 - 240 - 2 - Path("").size() + 1, 'x');
  ASSERT_EQ(Path(fits).size(), 495u);
  Process good(dir_, {"coordinator", "--dir", fits, "--", "sleep", "1"});
  Address(fits);
  EXPECT_EQ(Run({"status", "--dir", fits}).status, 0);
  good.Kill(SIGTERM);
  EXPECT_EQ(good.Wait().status, 143);
  std::filesystem::remove_all(Path(part));
  for (const char* word : {"run", "coordinator"}) {
    Expect({word, "--dir", fits + "x", "--", "true"}, 2, "has 496 bytes, and may have 495; choose a shorter --dir");
  }
  EXPECT_TRUE(Left().empty());
}

TEST_F(Command, RefusedAgent_LeavesNothing) {
  Process coordinator(dir_, {"coordinator", "--dir", "d", "--nodes", "2", "--", "sleep", "1000"});
  const std::string address = Address("d");
  const std::vector<std::string> agent = {"agent", "--coordinator", address, "--name", "n", "--token-file", "d/token"};
  auto with_dir = [&](const std::string& dir) {
    std::vector<std::string> words = agent;
    words.insert(words.end(), {"--dir", dir});
    return words;
  };
  Process first(dir_, with_dir("n1"));
  auto deadline = std::chrono::steady_clock::now() + kLong;
  while (ReadAll(Path("d/events.jsonl")).find("node_joined") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::vector<std::string> before = Left();
  Outcome refused = Run(with_dir("a/n2"));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("choose another --name"));
  EXPECT_EQ(Left(), before);
  EXPECT_TRUE(std::filesystem::exists(Path("n1/keeper.lock")));
  std::filesystem::create_directory(Path("x"));
  std::ofstream(Path("x/foreign")) << "x";
  Expect(with_dir("x"), 2, "holds files that are not Locum's (foreign)");
  first.Kill(SIGTERM);
  EXPECT_EQ(first.Wait().status, 143);
  EXPECT_TRUE(std::filesystem::exists(Path("n1/agent.log")));
  coordinator.Kill(SIGTERM);
  coordinator.Wait();
}

TEST_F(Command, DiskThatIsFull_SaysWhatToDo) {
  Process first(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  Address("d");
  first.Kill(SIGTERM);
  first.Wait();
  // No file may grow beyond that, as on a disk that is nearly full. What happens when it fills later is in
  // tests/integration/disk_test.py.
  Process second(dir_, {"coordinator", "--dir", "d"}, {}, 33u << 10);
  Outcome outcome = second.Wait();
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the disk of " + Path("d") + " is full: it has not the 8 MiB that"));
  EXPECT_THAT(outcome.err, HasSubstr("free space in " + Path("d")));
}

}  // namespace
}  // namespace locum::command
