#include "adapters/posix/strays.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace locum {
namespace {

using namespace std::chrono_literals;

// A process of another session whose environment names `socket`.
pid_t StartWith(const std::string& socket) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  pid_t pid = ::fork();
  if (pid == 0) {
    ::setsid();
    ::setenv("LOCUM_SOCKET", socket.c_str(), 1);
    ::dup2(ready[1], 1);
    ::execl("/bin/sh", "sh", "-c", "trap '' TERM HUP; echo; exec sleep 600 >/dev/null", nullptr);
    ::_exit(127);
  }
  ::close(ready[1]);
  char byte;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  return pid;
}

bool Ended(pid_t pid) {
  int status = 0;
  return ::waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST(Strays, ProcessThatNamesTheSocket_IsFoundAndEnded) {
  const std::string socket = "/nowhere/" + std::to_string(::getpid()) + "/keeper.sock";
  pid_t child = StartWith(socket);
  auto found = FindStrays(socket);
  EXPECT_EQ(std::count(found.begin(), found.end(), child), 1);
  // Its parent waits only afterwards: a process that is dead and not waited for has no environment left.
  auto ended = EndStrays(socket, 10s);
  ASSERT_TRUE(ended.ok()) << ended.status().message();
  EXPECT_GE(*ended, 1u);
  EXPECT_TRUE(Ended(child));
}

TEST(Strays, ProcessOfAnotherDirectory_IsSpared) {
  const std::string socket = "/nowhere/" + std::to_string(::getpid()) + "/keeper.sock";
  pid_t longer = StartWith(socket + "2"), shorter = StartWith("/nowhere");
  EXPECT_TRUE(FindStrays(socket).empty());
  auto ended = EndStrays(socket, 1s);
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(*ended, 0u);
  for (pid_t pid : {longer, shorter}) {
    EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0);
    ::kill(pid, SIGKILL);
    EXPECT_TRUE(Ended(pid));
  }
}

}  // namespace
}  // namespace locum
