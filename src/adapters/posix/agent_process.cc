#include "adapters/posix/agent_process.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "adapters/posix/monotonic.h"
#include "adapters/posix/node_files.h"
#include "adapters/posix/spawn.h"

namespace locum {
namespace {

constexpr size_t kMaxQueue = 8192;  // an agent so far behind does not read at all
constexpr Duration kCloseToEnd = std::chrono::seconds(1);

}  // namespace

AgentProcess::AgentProcess(EventPoll* poll, Setup setup, Emit emit)
    : poll_(poll), setup_(std::move(setup)), emit_(std::move(emit)), receiver_(kMaxKeeperMessage) {}

void AgentProcess::Start() {
  Leave();
  kill_at_ = kNever;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return emit_(AgentEnded{{}, ErrnoStatus(errno, "cannot make a socket pair").message()});
  }
  channel_ = OwnedFd(ends[0]);
  OwnedFd theirs(ends[1]);
  int bytes = 2 * static_cast<int>(kMaxKeeperMessage);
  ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  ::setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  Program program;
  program.command = setup_.command;
  program.command.push_back("--keeper-fd");
  program.command.push_back(std::to_string(theirs.get()));
  program.environment = EnvironmentWith(setup_.environment);
  program.output_fd = setup_.log_fd;
  program.kept_fd = theirs.get();
  program.mask = setup_.mask;
  program.restore_sigpipe = setup_.restore_sigpipe;
  std::optional<SpawnError> error = Spawn(program, &pid_);
  if (error) {
    pid_ = 0;
    channel_.Reset();
    return emit_(AgentEnded{{}, error->what});
  }
  watch_ = poll_->Add(channel_.get(), EPOLLIN, [this](uint32_t events) {
    if ((events & EPOLLOUT) != 0) Flush();
    if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) Hear();
  });
}

void AgentProcess::Leave() {
  watch_.Reset();
  channel_.Reset();
  queue_.clear();
}

void AgentProcess::Kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void AgentProcess::Tell(std::string packet, std::shared_ptr<WorkerLink> link) {
  if (!channel_.valid()) return;
  if (queue_.size() >= kMaxQueue) return Kill();
  queue_.push_back(Outgoing{std::move(packet), std::move(link)});
  Flush();
}

void AgentProcess::Flush() {
  while (!queue_.empty()) {
    const Outgoing& head = queue_.front();
    std::vector<int> descriptors;
    if (head.link) descriptors = {head.link->connection.get(), head.link->page.get()};
    Result<bool> sent = SendPacket(channel_.get(), head.packet, descriptors);
    if (sent.ok() && !*sent) break;
    queue_.pop_front();  // also what cannot be sent: the agent is gone, and a new one is told everything again
  }
  watch_.Change(queue_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void AgentProcess::Hear() {
  while (channel_.valid()) {
    Result<std::optional<Packet>> packet = receiver_.Receive(channel_.get());
    if (packet.ok() && !packet->has_value()) return;
    if (packet.ok() && Deliver((*packet)->bytes)) continue;
    Leave();
    kill_at_ = MonotonicNow() + kCloseToEnd;
    return;
  }
}

// False when the packet makes no sense; then the agent is not one of ours.
bool AgentProcess::Deliver(const std::string& packet) {
  auto emit = [&](auto decoded) {
    if (decoded.ok()) emit_(std::move(*decoded));
    return decoded.ok();
  };
  Result<KeeperMessage> type = KeeperTypeOf(packet);
  if (!type.ok()) return false;
  switch (*type) {
    case KeeperMessage::kStart: return emit(DecodeStart(packet));
    case KeeperMessage::kStop: return emit(DecodeStop(packet));
    case KeeperMessage::kShutdown: return emit(DecodeShutdown(packet));
    case KeeperMessage::kForget: {
      Result<Incarnation> worker = DecodeForget(packet);
      if (worker.ok()) emit_(ForgetWorker{*worker});
      return worker.ok();
    }
    case KeeperMessage::kRemember: {
      Result<std::string> notes = DecodeRemember(packet);
      if (notes.ok()) emit_(RememberNotes{std::move(*notes)});
      return notes.ok();
    }
    case KeeperMessage::kHello:
    case KeeperMessage::kWorker: break;
  }
  return false;
}

bool AgentProcess::ChildEnded(pid_t pid, ProcessEnd end) {
  if (pid != pid_ || pid_ == 0) return false;
  Hear();  // its last orders count
  pid_ = 0;
  Leave();
  kill_at_ = kNever;
  emit_(AgentEnded{end, ""});
  return true;
}

Time AgentProcess::Sweep(Time now) {
  if (kill_at_ > now) return kill_at_;
  kill_at_ = kNever;
  Kill();
  return kNever;
}

}  // namespace locum
