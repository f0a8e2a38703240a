// Joining and leaving; the step loop is in worker_steps.cc.
#include "worker/worker_job.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adapters/posix/monotonic.h"
#include "worker/fingerprint.h"
#include "worker/fork_guard.h"
#include "worker/threads.h"

namespace locum {
namespace {

// A peer that dies while it is written to must not end this process. The library's own sends never raise it; the
// program's communication library may.
void IgnoreSigpipe() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) return;
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
}

}  // namespace

Result<std::unique_ptr<WorkerJob>> WorkerJob::Join(const JoinParameters& parameters) {
  std::unique_ptr<WorkerJob> job(new WorkerJob);
  LOCUM_RETURN_IF_ERROR(job->Prepare(parameters));
  return job;
}

Status WorkerJob::Prepare(const JoinParameters& parameters) {
  if (parameters.total_steps > kMaxStep - 1) {
    return Invalid("total_steps is " + std::to_string(parameters.total_steps) + ", at most " +
                   std::to_string(kMaxStep - 1) + " are possible");
  }
  total_steps_ = parameters.total_steps;
  Result<std::string> fingerprint = MakeFingerprint(parameters.fingerprint);
  if (!fingerprint.ok()) return fingerprint.status();
  fingerprint_ = std::move(*fingerprint);
  InstallForkGuard();
  IgnoreSigpipe();
  Result<Joined> joined = JoinNode(parameters.socket, parameters.worker, parameters.timeout);
  if (!joined.ok()) return joined.status();
  joined_ = std::move(*joined);
  page_ = reinterpret_cast<Page*>(joined_.page.data());
  CloseInForkedChildren(joined_.socket.get());
  LOCUM_RETURN_IF_ERROR(MakeStepLog());
  wake_ = OwnedFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return ErrnoStatus(errno, "eventfd");

  const Incarnation self = joined_.welcome.worker;
  const DataIdentity identity{joined_.welcome.token, joined_.welcome.job};
  const int wake = wake_.get();
  protocol_ = std::make_unique<Protocol>(
      page_, self, total_steps_,
      [wake] {
        const uint64_t one = 1;
        [[maybe_unused]] ssize_t n = ::write(wake, &one, sizeof one);
      },
      [this] { port_->Poke(); });
  server_ = std::make_unique<StateServer>(protocol_.get(), &state_);
  port_ = std::make_unique<DataPort>(
      identity, self, [this] { return protocol_->StoreGeneration(); },
      [this](TcpSocket socket, const DataRequest& request) { return server_->Serve(std::move(socket), request); });
  LOCUM_RETURN_IF_ERROR(port_->Listen(joined_.welcome.address));
  CloseInForkedChildren(port_->listener_fd());
  store_ = std::make_unique<StoreClient>(identity);
  mover_ = std::make_unique<Mover>(protocol_.get(), &state_, identity, self);
  group_ = std::make_unique<GroupConnections>([this] {
    std::set<std::string> own = protocol_->DataAddresses();
    own.insert(port_->address());
    return own;
  });
  breaker_ = std::make_unique<Breaker>([this] { return protocol_->FindStraggler(); },
                                       [this](Generation generation) { group_->Break(generation); });
  link_ = std::make_unique<NodeLink>(joined_.socket.get(), wake, protocol_.get(), [this] { return Housekeeping(); });

  LOCUM_RETURN_IF_ERROR(server_->Start());
  LOCUM_RETURN_IF_ERROR(port_->Start());
  Result<std::thread> mover = StartThread("locum-mover", [this] { mover_->Run(); });
  if (!mover.ok()) return mover.status();
  mover_thread_ = std::move(*mover);
  Result<std::thread> aborter = StartThread("locum-abort", [this] {
    locum_abort_fn abort;
    void* context;
    while (protocol_->AwaitAbort(&abort, &context)) {
      abort(context);
      protocol_->AbortDone();
    }
  });
  if (!aborter.ok()) return aborter.status();
  abort_thread_ = std::move(*aborter);
  return link_->Start();
}

WorkerJob::~WorkerJob() {
  if (protocol_) protocol_->Leave();
  link_.reset();
  if (port_) ForgetInForkedChildren(port_->listener_fd());
  port_.reset();
  server_.reset();
  if (mover_thread_.joinable()) mover_thread_.join();
  if (abort_thread_.joinable()) abort_thread_.join();
  ForgetInForkedChildren(joined_.socket.get());
}

Status WorkerJob::MakeStepLog() {
  StepLogHeader head{};
  std::memcpy(head.magic, kStepLogMagic, sizeof head.magic);
  head.version = kStepLogVersion;
  head.record_bytes = sizeof(StepRecord);
  head.worker = joined_.welcome.worker.value;
  head.pid = static_cast<uint32_t>(::getpid());
  head.slot = joined_.welcome.slot.value;
  static_assert(RecordFile::kHeadBytes == kStepLogHeaderBytes);
  Result<std::unique_ptr<RecordFile>> log = RecordFile::Create(
      joined_.welcome.step_log, {reinterpret_cast<const char*>(&head), sizeof head}, sizeof(StepRecord));
  if (!log.ok()) return log.status().Annotate("step log");
  step_log_ = std::move(*log);
  return OkStatus();
}

// On the link's thread.
std::optional<Duration> WorkerJob::Housekeeping() {
  if (grow_step_log_.load(std::memory_order_acquire)) {
    if (!step_log_->Grow().ok()) grow_not_before_ns_ = (MonotonicNow() + std::chrono::seconds(1)).ns;
    grow_step_log_.store(false, std::memory_order_release);
  }
  return breaker_->Look(MonotonicNow());
}

Status WorkerJob::RegisterMemory(const Shard& shard, void* data) {
  if (ready_) return Invalid("shard '" + shard.name + "' is registered after the first step; register before it");
  return state_.AddMemory(shard, data);
}

Status WorkerJob::RegisterCallbacks(const Shard& shard, locum_read_fn read, locum_write_fn write, void* context) {
  if (ready_) return Invalid("shard '" + shard.name + "' is registered after the first step; register before it");
  return state_.AddCallbacks(shard, read, write, context);
}

Status WorkerJob::SetAbort(locum_abort_fn abort, void* context) {
  protocol_->SetAbort(abort, context);
  return OkStatus();
}

Status WorkerJob::BecomeReady() {
  if (state_.layout().bytes() == 0) {
    return Invalid("no state is registered; register what training changes before the first step");
  }
  JoinInfo info;
  info.protocol = kProtocolVersion;
  info.library = kVersion;
  info.fingerprint = fingerprint_;
  info.shards = state_.layout().shards();
  info.layout_hash = state_.layout().Hash();
  info.total_steps = total_steps_;
  info.data_address = port_->address();
  link_->SetJoinInfo(info);
  protocol_->Ready(&state_);
  ready_ = true;
  return OkStatus();
}

}  // namespace locum
