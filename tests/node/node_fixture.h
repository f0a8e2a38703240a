// A node of real processes in a directory of its own. All of them carry a mark in their environment, by which the
// fixture finds in /proc what is left of them.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/node/fake_coordinator.h"

namespace locum::test {

inline constexpr Duration kPatience = std::chrono::seconds(30);  // for what must happen; no test waits it out

class NodeFixture : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A keeper in `dir` (the fixture's by default).
  pid_t StartKeeper(const std::vector<std::string>& more = {}, const std::string& dir = "");
  // Its exit status, or 1000 + signal; -1 when it does not end.
  int AwaitEnd(pid_t keeper);
  // A keeper whose agent is connected and welcome; the workers will run `command`.
  void StartNode(const std::vector<std::string>& command, Duration grace = std::chrono::seconds(20));
  Welcome MakeWelcome(const std::vector<std::string>& command, Duration grace) const;
  void Order(std::vector<WorkerOrder> workers);
  static WorkerOrder RunSlot(uint32_t slot);
  bool AwaitWorker(uint32_t slot, const std::function<bool(const WorkerReport&)>& is);
  bool AwaitLog(const std::string& path, const std::string& text);

  std::vector<pid_t> Marked() const;  // processes of this test's node that are alive or zombies
  bool AwaitMarked(size_t count) const;
  bool AwaitNothingLeft() const { return AwaitMarked(0); }
  static bool AwaitTrue(const std::function<bool()>& condition);
  static std::string Read(const std::string& path);
  static pid_t ParentOf(pid_t pid);
  std::string Errors() const { return Read(root_ + "/stderr"); }

  static std::string WorkerProgram();

  std::string root_;
  std::string dir_;
  std::string mark_;
  std::string control_;
  std::unique_ptr<FakeCoordinator> coordinator_;
  std::vector<pid_t> keepers_;
  pid_t keeper_ = 0;
  uint64_t sequence_ = 0;
};

}  // namespace locum::test
