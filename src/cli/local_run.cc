#include "cli/local_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "adapters/eventlog/event_log.h"
#include "adapters/sqlite/directory.h"
#include "adapters/sqlite/store.h"
#include "cli/event_text.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/net.h"
#include "cli/status_json.h"

namespace locum {
namespace {

constexpr const char* kKeeperSocket = "keeper.sock";
constexpr int kTurnMs = 40;
constexpr auto kAddressDeadline = std::chrono::seconds(30);
constexpr auto kCoordinatorDeadline = std::chrono::seconds(1);   // from SIGTERM to SIGKILL
constexpr auto kBeyondGrace = std::chrono::milliseconds(700);    // for keepers, on top of the workers' grace
constexpr auto kLeaveDeadline = std::chrono::milliseconds(300);  // for nodes to end by the coordinator's order
constexpr auto kHurryDeadline = std::chrono::seconds(2);         // for keepers that were told twice
constexpr auto kKillDeadline = std::chrono::seconds(5);
constexpr auto kProven = std::chrono::seconds(60);  // a node that lived so long starts with the first delay
constexpr auto kCoordinatorRetry = std::chrono::seconds(1);
constexpr uint32_t kMaxCoordinatorRestarts = 20;  // each within kProven of the one before

sigset_t WatchedSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&set, signal);
  return set;
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

LocalRun::LocalRun(const RunArgs& args, std::string dir, std::string job, std::string token, int lock_fd,
                   std::function<Status()> started)
    : args_(args),
      dir_(std::move(dir)),
      job_(std::move(job)),
      token_(std::move(token)),
      lock_fd_(lock_fd),
      started_(std::move(started)),
      output_([this](std::string_view bytes) { display_.Output(bytes); }) {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set = WatchedSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  LOCUM_CHECK(signals_ >= 0);
  for (uint32_t i = 0; i < args.config.nodes + args.config.spares; ++i) {
    Node& node = nodes_.emplace_back();
    node.name = "node-" + std::to_string(i);
    node.dir = dir_ + "/nodes/" + node.name;
    node.delay = args.config.restart_delay;
  }
}

LocalRun::~LocalRun() { ::close(signals_); }

int LocalRun::Main() {
  if (!StartCoordinator(0)) return kExitFailed;
  EnterPhase(Phase::kStarting, kAddressDeadline);
  while (phase_ != Phase::kOver) {
    pollfd fd{signals_, POLLIN, 0};
    ::poll(&fd, 1, kTurnMs);
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo != SIGCHLD) OnSignal(static_cast<int>(info.ssi_signo));
    }
    for (const Children::Ended& ended : children_.Reap()) OnEnded(ended.pid, ended.status);
    Advance();
    Show();
  }
  ShowEnd();
  Clean();
  return status_ == kExitOk && display_.LostOutput() ? kExitFailed : status_;
}

// The nodes that run know this token and no other: whoever starts beside them must find it.
void LocalRun::KeepToken() {
  const std::string path = dir_ + "/" + kTokenFile;
  auto present = ReadFile(path, kMaxTokenFile);
  if (present.ok() && *present == token_ + "\n") return;
  if (Status written = WriteFileAtomically(path, token_ + "\n", 0600); !written.ok()) {
    display_.Message(written.message() + "; what is started now does not find the job's token");
  }
}

bool LocalRun::StartCoordinator(int port) {
  KeepToken();
  std::vector<std::string> words = {"coordinator"};
  words.insert(words.end(), args_.passed_on.begin(), args_.passed_on.end());
  words.insert(words.end(), {"--dir", dir_, "--job", job_, "--lock-fd", std::to_string(lock_fd_), "--local-port",
                             std::to_string(port), "--"});
  words.insert(words.end(), args_.command.begin(), args_.command.end());
  auto pid = children_.Start(words, dir_ + "/" + kCoordinatorLog, lock_fd_);
  if (!pid.ok()) {
    display_.Message(pid.status().message());
    return false;
  }
  coordinator_ = *pid;
  coordinator_started_at_ = Clock::now();
  return true;
}

void LocalRun::StartNode(Node* node) {
  node->start_at = Clock::time_point::max();
  node->started_at = Clock::now();
  KeepToken();
  auto pid = children_.Start({"agent", "--coordinator", address_, "--name", node->name, "--dir", node->dir,
                              "--token-file", dir_ + "/" + kTokenFile},
                             node->dir + "/output.log");
  if (!pid.ok()) {
    display_.Message(node->name + ": " + pid.status().message());
    node->start_at = Clock::now() + node->delay;
    return;
  }
  node->pid = *pid;
}

// The coordinator has written where it listens: now the nodes can start.
void LocalRun::AwaitAddress() {
  auto file = ReadCoordinatorFile(dir_);
  if (!file.ok() || file->pid != coordinator_) return;
  bool first = address_.empty();
  address_ = file->address;
  phase_ = Phase::kUp;
  coordinator_trouble_.clear();
  if (!first) return;
  poll_ = std::make_unique<ViewPoll>(address_, token_);
  Status status = StartAll();
  if (status.ok()) return;
  status = ExplainStart(status, dir_);
  display_.Message(status.message());
  status_ = StartExit(status);
  ::kill(coordinator_, SIGTERM);
  EnterPhase(Phase::kStopping, kCoordinatorDeadline);
}

Status LocalRun::StartAll() {
  LOCUM_RETURN_IF_ERROR(started_());
  for (const Node& node : nodes_) LOCUM_RETURN_IF_ERROR(MakeDirectory(node.dir));
  for (Node& node : nodes_) StartNode(&node);
  return OkStatus();
}

void LocalRun::OnSignal(int signal) {
  int status = 128 + signal;
  if (phase_ == Phase::kHurrying || phase_ == Phase::kKilling) return;
  if (phase_ == Phase::kStopping || phase_ == Phase::kStoppingNodes) {
    status_ = status;
    if (coordinator_ != 0) ::kill(coordinator_, SIGKILL);
    for (Node& node : nodes_) node.start_at = Clock::time_point::max();
    EnterPhase(Phase::kHurrying, kHurryDeadline);
    return;
  }
  display_.Message(std::string(signal == SIGINT ? "interrupted" : "told to end") +
                   "; stopping the job (once more: kill it at once)");
  status_ = status;
  if (coordinator_ == 0) return StopNodes();
  ::kill(coordinator_, SIGTERM);
  EnterPhase(Phase::kStopping, kCoordinatorDeadline);
}

void LocalRun::OnEnded(pid_t pid, int status) {
  if (pid == coordinator_) {
    coordinator_ = 0;
    return OnCoordinatorEnded(status);
  }
  for (Node& node : nodes_) {
    if (node.pid != pid) continue;
    node.pid = 0;
    // A keeper that was killed has left it. Now, not at the end: this process may be killed too before that.
    ::unlink((node.dir + "/" + kKeeperSocket).c_str());
    return OnNodeEnded(&node, status);
  }
}

void LocalRun::OnCoordinatorEnded(int status) {
  if (phase_ == Phase::kStopping) return StopNodes();
  if (phase_ != Phase::kUp && phase_ != Phase::kStarting) return;
  ShowEvents();
  if (told_end_) {
    // Killed or not: the end was on record, and with it the job's status.
    status_ = *told_end_;
    return EnterPhase(Phase::kLeaving, kLeaveDeadline);
  }
  if (Clock::now() - coordinator_started_at_ > kProven) coordinator_restarts_ = 0;
  if (WIFSIGNALED(status) && !address_.empty() && coordinator_restarts_ < kMaxCoordinatorRestarts) {
    ++coordinator_restarts_;
    display_.Message("the coordinator " + HowItEnded(status) + "; starting it again, training goes on meanwhile");
    return RestartCoordinator();
  }
  // It has run before and cannot start again: a full disk, most likely. Training needs it only when a node fails.
  if (!WIFSIGNALED(status) && phase_ == Phase::kStarting && !address_.empty() && AnyNode()) {
    const std::string trouble = WhyNotStarted(status);
    if (trouble != coordinator_trouble_) {
      display_.Message("the coordinator cannot start (" + trouble + "); trying again every second, training goes on");
    }
    coordinator_trouble_ = trouble;
    coordinator_start_at_ = Clock::now() + kCoordinatorRetry;
    return EnterPhase(Phase::kUp, Duration(0));
  }
  status_ = WIFSIGNALED(status) ? kExitFailed : WEXITSTATUS(status);
  Tail(dir_ + "/" + kCoordinatorLog,
       "the coordinator " + HowItEnded(status) +
           (WIFSIGNALED(status) ? "; it is not started again: it has ended too often" : ""));
  EnterPhase(Phase::kLeaving, Duration(0));
}

void LocalRun::RestartCoordinator() {
  coordinator_start_at_ = Clock::time_point::max();
  auto address = ParseHostPort(address_, "coordinator");
  if (address.ok() && StartCoordinator(address->port)) return EnterPhase(Phase::kStarting, kAddressDeadline);
  coordinator_start_at_ = Clock::now() + kCoordinatorRetry;
  EnterPhase(Phase::kUp, Duration(0));
}

// Its log lies on the same disk, and may say nothing.
std::string LocalRun::WhyNotStarted(int status) const {
  if (Status room = CheckRoom(dir_); !room.ok()) return ExplainStart(room, dir_).message();
  return "it " + HowItEnded(status) + "; see " + dir_ + "/coordinator.log";
}

void LocalRun::OnNodeEnded(Node* node, int status) {
  if (phase_ != Phase::kUp && phase_ != Phase::kStarting) return;
  ShowEvents();
  if (told_end_) return;
  bool asked = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  bool hopeless = WIFEXITED(status) && WEXITSTATUS(status) == kExitUsage;
  if (asked) return;
  std::string what = node->name + " " + HowItEnded(status);
  if (!WIFSIGNALED(status)) Tail(node->dir + "/output.log", what);
  if (hopeless || !args_.config.restart_nodes || node->restarts >= args_.config.restart_limit) {
    display_.Message(what + "; it is not started again" +
                     (hopeless                     ? ""
                      : args_.config.restart_nodes ? " (run.restart_limit)"
                                                   : " (--no-restart)"));
  } else {
    if (Clock::now() - node->started_at > kProven) node->delay = args_.config.restart_delay;
    display_.Message(what + "; starting it again in " + FormatDuration(node->delay));
    node->start_at = Clock::now() + node->delay;
    node->delay = std::min<std::chrono::nanoseconds>(node->delay * 2, args_.config.restart_delay_max);
    ++node->restarts;
  }
  if (!AnyNode()) {
    display_.Message("no node is left");
    status_ = kExitFailed;
    if (coordinator_ != 0) ::kill(coordinator_, SIGTERM);
    EnterPhase(Phase::kStopping, kCoordinatorDeadline);
  }
}

bool LocalRun::AnyNode() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const Node& n) { return n.pid != 0 || n.start_at != Clock::time_point::max(); });
}

void LocalRun::EnterPhase(Phase phase, std::chrono::nanoseconds limit) {
  phase_ = phase;
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
}

void LocalRun::StopNodes() {
  for (Node& node : nodes_) {
    node.start_at = Clock::time_point::max();
    if (node.pid != 0) ::kill(node.pid, SIGTERM);
  }
  EnterPhase(Phase::kStoppingNodes, args_.config.timeouts.grace + kBeyondGrace);
}

void LocalRun::Advance() {
  bool late = Clock::now() >= deadline_;
  switch (phase_) {
    case Phase::kStarting:
      AwaitAddress();
      if (phase_ != Phase::kStarting || !late) break;
      if (coordinator_restarts_ > 0) {  // training goes on without it, so it is tried again
        ::kill(coordinator_, SIGKILL);
        EnterPhase(Phase::kStarting, kAddressDeadline);
        break;
      }
      display_.Message("the coordinator has not said its address within 30 s");
      status_ = kExitFailed;
      ::kill(coordinator_, SIGKILL);
      EnterPhase(Phase::kStopping, kCoordinatorDeadline);
      break;
    case Phase::kUp:
      if (Clock::now() >= coordinator_start_at_) RestartCoordinator();
      for (Node& node : nodes_) {
        if (Clock::now() >= node.start_at) StartNode(&node);
      }
      break;
    case Phase::kLeaving:
      if (children_.None())
        phase_ = Phase::kOver;
      else if (late)
        StopNodes();
      break;
    case Phase::kStopping:
      if (coordinator_ == 0)
        StopNodes();
      else if (late)
        ::kill(coordinator_, SIGKILL);
      break;
    case Phase::kStoppingNodes:
      if (children_.None()) {
        phase_ = Phase::kOver;
      } else if (late) {
        children_.KillAll();
        EnterPhase(Phase::kKilling, kKillDeadline);
      }
      break;
    case Phase::kHurrying:
      // A keeper that is told twice kills its workers at once, and still takes its socket with it.
      for (const Node& node : nodes_) {
        if (node.pid != 0) ::kill(node.pid, SIGTERM);
      }
      if (children_.None()) {
        phase_ = Phase::kOver;
      } else if (late) {
        children_.KillAll();
        EnterPhase(Phase::kKilling, kKillDeadline);
      }
      break;
    case Phase::kKilling:
      children_.KillAll();  // also what was adopted since
      if (!children_.None() && !late) break;
      phase_ = Phase::kOver;
      break;
    case Phase::kOver: break;
  }
}

// What processes leave that had to be killed. By now none of them is left.
void LocalRun::Clean() {
  for (const char* file : {kCoordinatorFile, kStatusFile, kTokenFile}) ::unlink((dir_ + "/" + file + ".tmp").c_str());
  ::unlink((dir_ + "/" + kCoordinatorFile).c_str());
  for (const Node& node : nodes_) ::unlink((node.dir + "/" + kKeeperSocket).c_str());
  // Opened and closed, the store puts its write-ahead log back into itself.
  if (::access((dir_ + "/" + kStoreFile + "-wal").c_str(), F_OK) == 0)
    Status ignored = Store::OpenToRead(dir_).status();
}

}  // namespace locum
