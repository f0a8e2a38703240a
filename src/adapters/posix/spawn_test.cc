#include "adapters/posix/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace locum {
namespace {

int EndOf(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

Program Shell(const std::string& script) {
  Program program;
  program.command = {"/bin/sh", "-c", script};
  program.environment = EnvironmentWith({});
  return program;
}

TEST(Spawn, Program_Runs) {
  pid_t pid = 0;
  EXPECT_FALSE(Spawn(Shell("exit 7"), &pid).has_value());
  EXPECT_EQ(EndOf(pid), 7);
}

TEST(Spawn, MissingProgram_GivesTheErrorAndLeavesNoChild) {
  Program program = Shell("");
  program.command = {"/no/such/program"};
  pid_t pid = 0;
  std::optional<SpawnError> error = Spawn(program, &pid);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->what, "cannot execute '/no/such/program': No such file or directory");
  EXPECT_EQ(error->status, 127);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Spawn, Directory_IsNotExecutable) {
  Program program = Shell("");
  program.command = {"/tmp"};
  pid_t pid = 0;
  std::optional<SpawnError> error = Spawn(program, &pid);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->what, "cannot execute '/tmp': Permission denied");
  EXPECT_EQ(error->status, 126);
}

TEST(Spawn, Descriptors_AreClosedButTheKeptOne) {
  int open_one = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  int kept = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  Program program = Shell("test -e /proc/self/fd/" + std::to_string(open_one) + " && exit 1; test -e /proc/self/fd/" +
                          std::to_string(kept) + " || exit 2; exit 0");
  program.kept_fd = kept;
  pid_t pid = 0;
  EXPECT_FALSE(Spawn(program, &pid).has_value());
  EXPECT_EQ(EndOf(pid), 0);
  ::close(open_one);
  ::close(kept);
}

TEST(EnvironmentWith, Variables_ReplaceAndDoNotRepeat) {
  ::setenv("LOCUM_SPAWN_TEST", "old", 1);
  ::setenv("LOCUM_SPAWN_TEST_LONGER", "stays", 1);
  std::vector<std::string> environment = EnvironmentWith({{"LOCUM_SPAWN_TEST", "new"}});
  auto count = [&](const std::string& entry) { return std::count(environment.begin(), environment.end(), entry); };
  EXPECT_EQ(count("LOCUM_SPAWN_TEST=new"), 1);
  EXPECT_EQ(count("LOCUM_SPAWN_TEST=old"), 0);
  EXPECT_EQ(count("LOCUM_SPAWN_TEST_LONGER=stays"), 1);
}

}  // namespace
}  // namespace locum
