#include "tests/node/node_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "adapters/posix/monotonic.h"
#include "adapters/posix/node_files.h"
#include "adapters/posix/process_tree.h"

namespace locum::test {

void NodeFixture::SetUp() {
  char pattern[] = "/tmp/locum-node-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern), nullptr);
  root_ = pattern;
  dir_ = root_ + "/node";
  control_ = root_ + "/coordinator.sock";
  mark_ = "NODE_TEST_MARK=" + ToHex(DrawRandom());
  coordinator_ = std::make_unique<FakeCoordinator>(control_);
}

void NodeFixture::TearDown() {
  for (pid_t keeper : keepers_) {
    ::kill(keeper, SIGKILL);
    ::waitpid(keeper, nullptr, 0);
  }
  EXPECT_TRUE(AwaitNothingLeft()) << Marked().size() << " processes are left";
  for (pid_t left : Marked()) ::kill(left, SIGKILL);
  if (HasFailure()) {
    std::printf("---- agent.log\n%s---- stderr\n%s", Read(dir_ + "/agent.log").c_str(), Errors().c_str());
  }
  std::filesystem::remove_all(root_);
}

pid_t NodeFixture::StartKeeper(const std::vector<std::string>& more, const std::string& dir) {
  std::vector<std::string> words = {NODE_TEST_NODE, "keeper", dir.empty() ? dir_ : dir, control_};
  words.insert(words.end(), more.begin(), more.end());
  pid_t pid = ::fork();
  if (pid == 0) {
    int errors = ::open((root_ + "/stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(errors, 2);
    ::putenv(mark_.data());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(97);
  }
  keepers_.push_back(pid);
  keeper_ = pid;
  return pid;
}

int NodeFixture::AwaitEnd(pid_t keeper) {
  int status = 0;
  if (!AwaitTrue([&] { return ::waitpid(keeper, &status, WNOHANG) == keeper; })) return -1;
  std::erase(keepers_, keeper);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

Welcome NodeFixture::MakeWelcome(const std::vector<std::string>& command, Duration grace) const {
  Welcome welcome;
  welcome.term = Term(1);
  welcome.job = "job";
  welcome.cluster = Incarnation(77);
  welcome.command = command;
  welcome.grace = grace;
  welcome.heartbeat = std::chrono::milliseconds(50);
  welcome.freeze_deadline = welcome.collective_deadline = welcome.park_deadline = std::chrono::minutes(10);
  return welcome;
}

void NodeFixture::StartNode(const std::vector<std::string>& command, Duration grace) {
  StartKeeper();
  ASSERT_TRUE(coordinator_->AwaitAgent(kPatience));
  coordinator_->Send(LinkUp{MakeWelcome(command, grace)});
}

WorkerOrder NodeFixture::RunSlot(uint32_t slot) {
  WorkerOrder order;
  order.slot = Slot(slot);
  return order;
}

void NodeFixture::Order(std::vector<WorkerOrder> workers) {
  NodeOrder order;
  order.term = Term(1);
  order.sequence = ++sequence_;
  order.workers = std::move(workers);
  coordinator_->Send(LinkOrder{order});
}

bool NodeFixture::AwaitWorker(uint32_t slot, const std::function<bool(const WorkerReport&)>& is) {
  return coordinator_->Await(kPatience, [&](const FakeCoordinator& c) { return is(c.Worker(slot)); });
}

bool NodeFixture::AwaitLog(const std::string& path, const std::string& text) {
  return AwaitTrue([&] { return Read(path).find(text) != std::string::npos; });
}

std::vector<pid_t> NodeFixture::Marked() const {
  std::vector<pid_t> found;
  DIR* dir = ::opendir("/proc");
  while (dirent* entry = ::readdir(dir)) {
    pid_t pid = std::atoi(entry->d_name);
    if (pid > 0 && Read("/proc/" + std::to_string(pid) + "/environ").find(mark_) != std::string::npos) {
      found.push_back(pid);
    }
  }
  ::closedir(dir);
  return found;
}

bool NodeFixture::AwaitMarked(size_t count) const {
  return AwaitTrue([&] { return Marked().size() == count; });
}

bool NodeFixture::AwaitTrue(const std::function<bool()>& condition) {
  Time deadline = MonotonicNow() + kPatience;
  while (!condition()) {
    if (MonotonicNow() >= deadline) return false;
    ::usleep(2000);
  }
  return true;
}

std::string NodeFixture::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

pid_t NodeFixture::ParentOf(pid_t pid) {
  ProcessLine line;
  return ParseStatLine(Read("/proc/" + std::to_string(pid) + "/stat"), &line) ? line.parent : -1;
}

std::string NodeFixture::WorkerProgram() { return NODE_TEST_WORKER; }

}  // namespace locum::test
