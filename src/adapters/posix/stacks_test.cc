#include "adapters/posix/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace locum {
namespace {

using ::testing::HasSubstr;

std::string ReadBack(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Stacks, StoppedProcess_IsDescribedAndLeftAsItWas) {
  const std::string path = ::testing::TempDir() + "stacks-" + std::to_string(::getpid());
  pid_t child = ::fork();
  if (child == 0) {
    while (true) ::pause();
  }
  ::kill(child, SIGSTOP);
  ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
  Status written = WriteStacks(child, path);
  EXPECT_TRUE(written.ok()) << written.message();
  EXPECT_THAT(ReadBack(path), HasSubstr("thread " + std::to_string(child) + " '"));
  EXPECT_THAT(ReadBack(path), HasSubstr("' state T"));
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(WriteStacks(child, path).ok());
  EXPECT_THAT(ReadBack(path), HasSubstr("no thread can be seen"));
  ::unlink(path.c_str());
}

TEST(Stacks, FileThatCannotBeWritten_IsAnErrorThatNamesIt) {
  EXPECT_THAT(WriteStacks(::getpid(), "/nowhere/x").message(), HasSubstr("/nowhere/x"));
}

}  // namespace
}  // namespace locum
