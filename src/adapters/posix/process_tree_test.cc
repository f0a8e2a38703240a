#include "adapters/posix/process_tree.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace locum {
namespace {

constexpr char kLine[] =
    "4711 (odd) name (x)) S 17 4711 4711 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 200 18446744073709551615";

TEST(ParseStatLine, NameWithBlanksAndParentheses_IsSkipped) {
  ProcessLine line;
  ASSERT_TRUE(ParseStatLine(kLine, &line));
  EXPECT_EQ(line.pid, 4711);
  EXPECT_EQ(line.state, 'S');
  EXPECT_EQ(line.parent, 17);
  EXPECT_EQ(line.start, 987654u);
}

TEST(ParseStatLine, BrokenLines_AreRejected) {
  ProcessLine line;
  std::string whole(kLine);
  size_t start = whole.find("987654");
  for (size_t size = 0; size < start; ++size) EXPECT_FALSE(ParseStatLine(whole.substr(0, size), &line)) << size;
  EXPECT_FALSE(ParseStatLine("x (y) S 1", &line));
  EXPECT_FALSE(ParseStatLine(")(", &line));
}

// In a child of the test, which becomes a subreaper: the tests' own process must not.
int InSubreaper(int (*body)()) {
  pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

void Sleep() {
  while (true) ::pause();
}

TEST(KillDescendants, ChildrenOrphansAndSessions_AreAllEnded) {
  EXPECT_EQ(InSubreaper([] {
              int ready[2];
              if (::pipe(ready) != 0) return 1;
              if (::fork() == 0) {
                ::setsid();
                ::signal(SIGTERM, SIG_IGN);
                for (int i = 0; i < 5; ++i) {
                  if (::fork() == 0) {
                    if (::fork() != 0) ::_exit(0);
                    if (::write(ready[1], "x", 1) != 1) ::_exit(9);
                    Sleep();
                  }
                }
                Sleep();
              }
              char byte;
              for (int i = 0; i < 5; ++i) {
                if (::read(ready[0], &byte, 1) != 1) return 2;
              }
              if (Descendants(::getpid(), {}).size() < 6) return 3;
              for (int rounds = 0; rounds < 1000; ++rounds) {
                KillDescendants({});
                while (::waitpid(-1, nullptr, WNOHANG) > 0) {
                }
                if (::waitpid(-1, nullptr, WNOHANG) < 0) return 0;
                ::usleep(1000);
              }
              return 4;
            }),
            0);
}

TEST(KillDescendants, SparedChild_LivesWithWhatIsBelowIt) {
  EXPECT_EQ(InSubreaper([] {
              int ready[2];
              if (::pipe(ready) != 0) return 1;
              pid_t spared = ::fork();
              if (spared == 0) {
                if (::fork() == 0) Sleep();
                if (::write(ready[1], "x", 1) != 1) ::_exit(9);
                Sleep();
              }
              char byte;
              if (::read(ready[0], &byte, 1) != 1) return 2;
              if (KillDescendants({spared}) != 0) return 3;
              if (Descendants(::getpid(), {}).size() != 2) return 4;
              KillDescendants({});
              while (::waitpid(-1, nullptr, 0) > 0) {
              }
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace locum
