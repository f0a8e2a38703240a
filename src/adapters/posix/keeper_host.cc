#include "adapters/posix/keeper_host.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <new>
#include <utility>

#include "adapters/posix/dir_lock.h"
#include "adapters/posix/mapping.h"
#include "adapters/posix/monotonic.h"
#include "adapters/posix/node_files.h"
#include "adapters/posix/pidfd.h"
#include "adapters/posix/process_tree.h"
#include "adapters/posix/strays.h"
#include "ports/page.h"

namespace locum {
namespace {

constexpr Duration kLockPatience = std::chrono::seconds(10);  // for an earlier keeper's workers to end
constexpr Duration kStrayPatience = std::chrono::seconds(10);
constexpr Duration kLastPatience = std::chrono::seconds(2);  // for our own children, at the very end

// So that no descriptor of ours ever takes the number of a standard one.
void EnsureStandardDescriptors() {
  int fd;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= 2);
  if (fd > 2) ::close(fd);
}

Result<OwnedFd> MakePage() {
  Result<OwnedFd> fd = MakeSharedMemory("locum-page", kPageBytes);
  if (!fd.ok()) return fd;
  Result<Mapping> mapping = Mapping::Shared(fd->get(), 0, kPageBytes);
  if (!mapping.ok()) return mapping.status();
  Page* page = new (mapping->data()) Page{};
  page->stop_at.store(kNoStop.value);
  page->magic.store(kPageMagic);
  return fd;
}

}  // namespace

PosixKeeperHost::PosixKeeperHost() = default;

Result<std::unique_ptr<PosixKeeperHost>> PosixKeeperHost::Create(const Options& options) {
  std::unique_ptr<PosixKeeperHost> host(new PosixKeeperHost);
  Status opened = host->Open(options);
  if (!opened.ok()) return opened;
  return host;
}

Status PosixKeeperHost::Open(const Options& options) {
  EnsureStandardDescriptors();
  std::error_code error;
  std::filesystem::create_directories(options.dir, error);
  if (error) {
    return Invalid("directory '" + options.dir + "' cannot be made: " + error.message() +
                   "; choose another one with --dir");
  }
  dir_ = std::filesystem::canonical(options.dir, error).string();
  if (error) return Invalid("directory '" + options.dir + "': " + error.message());
  Result<OwnedFd> lock = LockDirectory(dir_, kLockPatience);
  if (!lock.ok()) return lock.status();
  lock_ = std::move(*lock);
  std::string log = dir_ + "/agent.log";
  log_ = OwnedFd(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log_.valid()) return ErrnoStatus(errno, "cannot open '" + log + "'");
  own_pidfd_ = OwnedFd(PidfdOpen(::getpid()));
  if (!own_pidfd_.valid()) return ErrnoStatus(errno, "cannot open a pidfd (Linux 5.3 or later is needed)");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return ErrnoStatus(errno, "cannot become a child subreaper");
  // The lock vouches for what reapers watch; where these were killed as well, this does.
  Result<size_t> strays = EndStrays(SocketPath(), kStrayPatience);
  if (!strays.ok()) return strays.status();
  if (*strays != 0) Log("strays_ended", std::to_string(*strays) + " processes of an earlier keeper's workers");
  LOCUM_RETURN_IF_ERROR(TakeSignals());
  if (options.parent_pidfd >= 0) {
    parent_ = OwnedFd(::fcntl(options.parent_pidfd, F_DUPFD_CLOEXEC, 3));
    if (!parent_.valid()) return ErrnoStatus(errno, "the parent's pidfd");
    parent_watch_ = poll_.Add(parent_.get(), EPOLLIN, [this](uint32_t) {
      parent_watch_.Reset();
      events_.push_back(EndAsked{0});
    });
  }
  auto emit = [this](KeeperHostEvent event) { events_.push_back(std::move(event)); };
  door_ = std::make_unique<JoinDoor>(&poll_, [this](JoinAsked asked) {
    callers_[asked.connection] = asked.pid;
    events_.push_back(std::move(asked));
  });
  LOCUM_RETURN_IF_ERROR(door_->Open(SocketPath()));
  workers_ = std::make_unique<WorkerProcesses>(
      &poll_,
      WorkerProcesses::Setup{own_pidfd_.get(), lock_.get(), SocketPath(), options.name, first_mask_, restore_sigpipe_,
                             PidfdTellsEnd()},
      emit);
  agent_ = std::make_unique<AgentProcess>(
      &poll_,
      AgentProcess::Setup{options.agent_command, options.agent_environment, log_.get(), first_mask_, restore_sigpipe_},
      emit);
  return OkStatus();
}

Status PosixKeeperHost::TakeSignals() {
  struct sigaction before {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  restore_sigpipe_ = before.sa_handler == SIG_DFL;
  ::signal(SIGCHLD, SIG_DFL);  // ignored, it would take the exit statuses away
  sigset_t mine;
  sigemptyset(&mine);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mine, signal);
  ::sigprocmask(SIG_BLOCK, &mine, &first_mask_);
  signals_ = OwnedFd(::signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return ErrnoStatus(errno, "cannot make a signalfd");
  signals_watch_ = poll_.Add(signals_.get(), EPOLLIN, [this](uint32_t) { HearSignals(); });
  return OkStatus();
}

PosixKeeperHost::~PosixKeeperHost() {
  if (door_) door_->Close();
  if (!agent_) return;  // never opened: nothing of ours runs
  Time deadline = MonotonicNow() + kLastPatience;
  siginfo_t info;
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && MonotonicNow() < deadline) {
    // A reaper that has said all is just leaving; what else is here should not be.
    if (info.si_pid == 0) {
      KillDescendants(workers_->Reapers());
      poll_.Wait(MonotonicNow() + std::chrono::milliseconds(1));
    }
    info.si_pid = 0;
  }
}

Time PosixKeeperHost::Now() { return MonotonicNow(); }

uint64_t PosixKeeperHost::Draw() { return DrawRandom(); }

std::vector<KeeperHostEvent> PosixKeeperHost::Wait(Time until) {
  while (true) {
    Time now = MonotonicNow();
    until = std::min(until, agent_->Sweep(now));
    Time sweep = std::min(door_->Sweep(now), workers_->EndOrphans(agent_->pid(), now));
    poll_.Wait(!events_.empty() ? now : std::min(until, sweep));
    if (!events_.empty() || MonotonicNow() >= until) return std::exchange(events_, {});
  }
}

void PosixKeeperHost::HearSignals() {
  signalfd_siginfo info;
  bool child = false;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      child = true;
    } else {
      events_.push_back(EndAsked{static_cast<int32_t>(info.ssi_signo)});
    }
  }
  if (child) WaitForChildren();
}

void PosixKeeperHost::WaitForChildren() {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
    ProcessEnd end;
    (info.si_code == CLD_EXITED ? end.status : end.signal) = info.si_status;
    bool agent = agent_->ChildEnded(info.si_pid, end);
    // Whatever an agent had forked is nobody's now; an unknown child is somebody's orphan.
    if (agent || !workers_->ChildEnded(info.si_pid, end)) workers_->ExpectOrphans();
    info.si_pid = 0;
  }
}

void PosixKeeperHost::TellHello(const KeeperHello& hello) { agent_->Tell(EncodeKeeperHello(hello), nullptr); }

void PosixKeeperHost::TellWorker(const WorkerRecord& record) {
  agent_->Tell(EncodeWorker(record), record.joined ? workers_->Link(record.worker) : nullptr);
}

Status PosixKeeperHost::Admit(uint64_t connection, const WorkerWelcome& welcome) {
  JoinDoor::Caller caller = door_->Take(connection);
  int32_t pid = std::exchange(callers_[connection], 0);
  callers_.erase(connection);
  if (!caller.connection.valid()) return Unavailable("a worker left before it was welcome");
  Result<OwnedFd> page = MakePage();
  if (!page.ok()) return page.status();
  Result<bool> sent = SendPacket(caller.connection.get(), EncodeWelcome(welcome), {page->get()});
  auto link = std::make_shared<WorkerLink>();
  link->connection = std::move(caller.connection);
  link->page = std::move(*page);
  workers_->Joined(welcome.worker, pid, std::move(caller.process), std::move(link));
  return sent.ok() ? OkStatus() : sent.status();
}

void PosixKeeperHost::CloseDoor() { door_->Shut(); }

void PosixKeeperHost::RefuseJoin(uint64_t connection, const std::string& text) {
  JoinDoor::Caller caller = door_->Take(connection);
  callers_.erase(connection);
  if (caller.connection.valid()) (void)SendPacket(caller.connection.get(), EncodeRefused(text));
}

void PosixKeeperHost::Log(const std::string& name, const std::string& text) {
  AppendLogLine(log_.get(), "keeper", name, text);
}

void PosixKeeperHost::Complain(const std::string& text) {
  std::string line = "locum agent: " + text + "\n";
  [[maybe_unused]] ssize_t written = ::write(2, line.data(), line.size());
}

}  // namespace locum
