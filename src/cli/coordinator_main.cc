// `locum coordinator`: takes hold of DIR, wires the core to its store, history and port, and runs it.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>

#include "adapters/eventlog/event_log.h"
#include "adapters/eventlog/input_log.h"
#include "adapters/grpc/server.h"
#include "adapters/posix/node_files.h"
#include "adapters/sqlite/directory.h"
#include "adapters/sqlite/store.h"
#include "cli/commands.h"
#include "cli/event_text.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/net.h"
#include "cli/start_dir.h"
#include "cli/status_json.h"
#include "cli/stop_watch.h"
#include "runtime/coordinator_loop.h"

namespace locum {
namespace {

constexpr Duration kDrain = std::chrono::milliseconds(500);   // for last orders to reach the agents
constexpr size_t kEndTail = 1u << 20;                         // of the history; little is told after a job's end
constexpr Duration kSnapshotPause = std::chrono::seconds(1);  // between two writings of status.json

Time Now() {
  return Time{std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

int64_t UnixNow() {
  return std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()).count();
}

JobSpec SpecOf(const CoordinatorArgs& args, const std::string& job) {
  const Config& c = args.config;
  return {job, args.command, c.nodes, c.spares, c.nproc_per_node, c.seed, c.timeouts};
}

// Everything the coordinator holds while it runs. Members are in the order of their making.
class Session {
 public:
  explicit Session(const CoordinatorArgs& args) : args_(args) {}

  int Run() {
    if (Status status = Prepare(); !status.ok()) return Complain(status.message(), StartExit(status));
    MakeLoop();
    std::atomic<int> stop_status{0};
    StopWatch watch(args_.parent_pidfd, [&](const std::string& reason, int status) {
      stop_status = status;
      loop_->Stop(reason);
    });
    if (Status status = Listen(); !status.ok()) return Complain(status.message(), StartExit(status));
    start_.Keep();
    CoordinatorLoop::Outcome outcome = loop_->Run();
    server_->Shutdown(kDrain);
    WriteSnapshot();
    ::unlink((dir_ + "/" + kCoordinatorFile).c_str());
    if (outcome.end == CoordinatorLoop::End::kStopped) return stop_status;
    if (outcome.end == CoordinatorLoop::End::kFailed) return Complain(outcome.reason, kExitFailed);
    if (!outcome.reason.empty() && outcome.exit_status != 0) Complain(outcome.reason, 0);
    return outcome.exit_status;
  }

 private:
  Status Prepare();
  Status PrepareDirectory();
  Status TakeUp(std::optional<PersistentState> stored);
  Status RefuseEnded(const PersistentState& ended);
  Status Listen();
  void MakeLoop();
  CoordinatorPorts MakePorts();
  Status Persist(const PersistentState& state);
  void LogInput(Time now, const Event& event, const std::vector<Action>& actions);
  void LogNote(const Note& note, Time now);
  void WriteSnapshot();

  const CoordinatorArgs args_;
  std::string dir_;
  HostPort address_;
  std::optional<DirectoryLock> lock_;
  StartDir start_;  // what it takes away, it takes away under the lock, from under nobody
  std::unique_ptr<Store> store_;
  std::unique_ptr<EventLog> events_;
  std::unique_ptr<InputLog> inputs_;
  std::string token_;
  JobSpec spec_;
  Term term_;
  std::unique_ptr<Coordinator> core_;
  std::unique_ptr<CoordinatorLoop> loop_;
  std::unique_ptr<GrpcServer> server_;
  std::string note_error_;
  bool snapshot_due_ = false;
  Time snapshot_at_{};
};

Status Session::Prepare() {
  std::string job = args_.job.empty() ? NewJobId() : args_.job;
  bool default_dir = args_.config.dir.empty();
  if (default_dir && args_.command.empty())
    return Invalid("no command and no --dir; locum coordinator --dir DIR -- COMMAND...");
  dir_ = AbsolutePath(default_dir ? std::string(kRunsDir) + "/" + job : args_.config.dir);
  if (args_.command.empty() && ::access((dir_ + "/" + kStoreFile).c_str(), F_OK) != 0) {
    return Invalid(dir_ + " holds no job to take up; give the command: locum coordinator --dir DIR -- COMMAND...");
  }
  // One connection a node; a question opens one, too.
  LOCUM_RETURN_IF_ERROR(CheckDescriptors(kLeastDescriptors + args_.config.nodes + args_.config.spares));
  auto address = args_.local_port >= 0 ? HostPort{"127.0.0.1", static_cast<uint16_t>(args_.local_port)}
                                       : ListenAddress(args_.config);
  if (!address.ok()) return address.status();
  address_ = *address;
  spec_ = SpecOf(args_, job);
  return ExplainStart(PrepareDirectory(), dir_);
}

Status Session::PrepareDirectory() {
  LOCUM_RETURN_IF_ERROR(CheckPathLength(dir_));
  LOCUM_RETURN_IF_ERROR(start_.Make(dir_, DirSetting(args_.config, "job.dir")));
  LOCUM_RETURN_IF_ERROR(CheckFilesystem(dir_));
  const bool inherited = args_.lock_fd >= 0;
  auto lock = inherited ? DirectoryLock::Inherit(dir_, args_.lock_fd) : DirectoryLock::Take(dir_);
  if (!lock.ok()) return lock.status();
  lock_.emplace(std::move(*lock));
  start_.Guard(IsCoordinatorFile, inherited ? "" : kLockFile);
  auto store = Store::Open(dir_);
  if (!store.ok()) return store.status();
  store_ = std::move(*store);
  auto stored = store_->Load();
  if (!stored.ok()) return stored.status();
  LOCUM_RETURN_IF_ERROR(TakeUp(std::move(*stored)));

  auto token = EnsureToken(args_.config.token_file, dir_);
  if (!token.ok()) return token.status();
  token_ = *token;
  auto events = EventLog::Open(dir_ + "/" + kEventsFile);
  if (!events.ok()) return events.status();
  events_ = std::move(*events);
  return OkStatus();
}

// A new core: for a new job, or for the unfinished one that is stored.
Status Session::TakeUp(std::optional<PersistentState> stored) {
  term_ = Term(1);
  Incarnation cluster(RandomNumber());
  if (stored) {
    if (stored->phase == JobPhase::kFinished || stored->phase == JobPhase::kFailed) return RefuseEnded(*stored);
    if (!args_.command.empty() && args_.command != stored->spec.command) {
      return Refused(dir_ + " holds the unfinished job " + stored->spec.job +
                     " with another command; leave the command out to take it up, or choose another --dir");
    }
    const std::pair<const char*, std::pair<uint32_t, uint32_t>> counts[] = {
        {"job.nodes", {args_.config.nodes, stored->spec.nodes}},
        {"job.spares", {args_.config.spares, stored->spec.spares}},
        {"job.nproc_per_node", {args_.config.nproc_per_node, stored->spec.workers_per_node}}};
    for (const auto& [key, values] : counts) {
      if (!args_.config.Has(key) || values.first == values.second) continue;
      return Refused(args_.config.origin.at(key) + ": " + std::to_string(values.first) +
                     " is not what the unfinished job " + stored->spec.job + " in " + dir_ + " has (" +
                     std::to_string(values.second) + "); leave it out to take the job up");
    }
    spec_ = stored->spec;
    term_ = stored->term.Next();
    cluster = stored->cluster;
  } else if (args_.command.empty()) {
    return Invalid(dir_ + " holds no job to take up; give the command: locum coordinator --dir DIR -- COMMAND...");
  }
  auto inputs = InputLog::Create(dir_ + "/" + InputLogName(term_), args_.config.input_log_mib << 20);
  if (!inputs.ok()) return inputs.status();
  inputs_ = std::move(*inputs);
  wire::InputRecord record;
  *record.mutable_start() = ToWire(spec_, term_, cluster, stored ? &*stored : nullptr);
  record.mutable_start()->set_version(kVersion);
  inputs_->Append(record.SerializeAsString());
  core_ = std::make_unique<Coordinator>(spec_, term_, cluster, std::move(stored));
  return OkStatus();
}

// The end goes to the store before it is told. A coordinator that was killed between the two has left a history
// without it; this one, which can do nothing else for the job, tells it.
Status Session::RefuseEnded(const PersistentState& ended) {
  if (!ToldEnd(ReadTail(dir_ + "/" + kEventsFile, kEndTail))) {
    auto events = EventLog::Open(dir_ + "/" + kEventsFile);
    if (!events.ok()) return events.status();
    LOCUM_RETURN_IF_ERROR((*events)->Append(FormatEvent(EndNote(ended), ended.term, Now(), UnixNow())));
  }
  return Refused(dir_ + " holds the job " + ended.spec.job + ", which has " +
                 (ended.phase == JobPhase::kFinished ? "finished" : "failed") +
                 "; it can be read (locum status, locum events) but not run again. Choose another --dir");
}

void Session::LogInput(Time now, const Event& event, const std::vector<Action>& actions) {
  if (inputs_ == nullptr) return;
  wire::InputRecord record;
  record.mutable_input()->set_now_ns(now.ns);
  *record.mutable_input()->mutable_event() = ToWire(event);
  for (const Action& action : actions) *record.mutable_input()->add_actions() = ToWire(action);
  if (inputs_->Append(record.SerializeAsString())) return;
  Complain("the input log has reached its limit (coordinator.input_log_mib); it ends here", 0);
  inputs_.reset();
}

void Session::LogNote(const Note& note, Time now) {
  std::string line = FormatEvent(note, term_, now, UnixNow());
  // Whoever reads that the job has ended finds in the snapshot how, and where the ranks' logs are.
  if (ToldEnd(line)) WriteSnapshot();
  Status status = events_->Append(line);
  std::string error = status.ok() ? "" : status.message();
  if (error != note_error_ && !error.empty()) Complain(error, 0);
  note_error_ = error;
  snapshot_due_ = true;
}

Status Session::Persist(const PersistentState& state) {
  Status status = store_->Save(state);
  if (status.ok()) return status;
  // Training goes on without a coordinator, but `locum run` ends its nodes with it.
  const bool of_run = args_.local_port >= 0;
  return Internal(status.message() + "; free space in " + dir_ + " (or mend its disk), then " +
                  (of_run
                       ? std::string("run the job again with another --dir")
                       : "'locum coordinator --dir " + dir_ + "' takes the job up again; training goes on meanwhile"));
}

CoordinatorPorts Session::MakePorts() {
  CoordinatorPorts ports;
  ports.persist = [this](const PersistentState& state) { return Persist(state); };
  ports.welcome = [this](const SendWelcome& a) { server_->SendWelcome(a.stream, a.welcome); };
  ports.refuse = [this](const RefuseNode& a) { server_->Refuse(a.stream, a.reason); };
  ports.order = [this](const SendOrder& a) { server_->SendOrder(a.stream, a.order); };
  ports.answer = [this](const Answer& a) { server_->Answer(a.request, a.status); };
  ports.note = [this](const Note& note, Time now) { LogNote(note, now); };
  ports.input = [this](Time now, const Event& event, const std::vector<Action>& actions) {
    LogInput(now, event, actions);
  };
  ports.idle = [this] {
    if (inputs_ != nullptr) {
      if (Status status = inputs_->Flush(); !status.ok()) {
        Complain(status.message() + "; the input log ends here", 0);
        inputs_.reset();
      }
    }
    // Without anything new once a second, so that what a dead coordinator leaves is not old.
    if (Now() >= snapshot_at_ + (snapshot_due_ ? Duration(0) : Duration(std::chrono::seconds(1)))) WriteSnapshot();
  };
  return ports;
}

void Session::WriteSnapshot() {
  snapshot_due_ = false;
  snapshot_at_ = Now() + kSnapshotPause;
  Status status = WriteFileAtomically(dir_ + "/" + kStatusFile, DumpJson(StatusJson(core_->View()), 1), 0644);
  if (!status.ok()) Complain(status.message(), 0);
}

void Session::MakeLoop() {
  CoordinatorCore core{[this](const Event& event, Time now) { return core_->Step(event, now); },
                       [this] { return core_->View(); }};
  loop_ = std::make_unique<CoordinatorLoop>(std::move(core), MakePorts(), Now);
}

Status Session::Listen() {
  ServerHandlers handlers;
  handlers.post = [this](Event event, std::function<void()> taken) {
    return loop_->Post(std::move(event), std::move(taken));
  };
  handlers.view = [this](std::function<void(const ClusterView*)> call) { return loop_->View(std::move(call)); };
  auto server =
      GrpcServer::Start({address_.host, address_.port, token_, dir_ + "/" + kEventsFile}, std::move(handlers));
  if (!server.ok()) return server.status();
  server_ = std::move(*server);
  std::string text = FormatHostPort(address_.host, server_->port());
  LOCUM_RETURN_IF_ERROR(WriteCoordinatorFile(dir_, {text, ::getpid(), spec_.job, kVersion}));
  if (args_.config.dir.empty()) LOCUM_RETURN_IF_ERROR(PointLatest(spec_.job));
  std::printf("coordinator at %s, job %s, term %llu, %s\n", text.c_str(), spec_.job.c_str(),
              static_cast<unsigned long long>(term_.value), dir_.c_str());
  if (!IsLoopback(address_.host)) std::printf("agents need the token in %s/%s\n", dir_.c_str(), kTokenFile);
  std::fflush(stdout);
  return OkStatus();
}

}  // namespace

int CoordinatorMain(const CoordinatorArgs& args) {
  ::signal(SIGPIPE, SIG_IGN);
  BlockStopSignals();
  return Session(args).Run();
}

int Complain(const std::string& text, int status) {
  std::fprintf(stderr, "locum: %s\n", text.c_str());
  return status;
}

}  // namespace locum
