// `locum coordinator`: takes hold of DIR, wires the core to its store, history and port, and runs it.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
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
#include "cli/crash_point.h"
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

constexpr rlim_t kMaxDescriptors = 65536;
constexpr Duration kDrain = std::chrono::milliseconds(500);   // for last orders to reach the agents
constexpr size_t kEndTail = 1u << 20;                         // of the history; little is told after a job's end
constexpr Duration kSnapshotPause = std::chrono::seconds(1);  // between two writings of status.json

// What was recorded went with it, and what follows it has no place: no room brings that back.
const std::string kDirectoryGone =
    "; the directory was deleted: a node that fails is not replaced any more. Let the job end, or stop it";

Time Now() {
  return Time{std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

int64_t UnixNow() {
  return std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()).count();
}

JobSpec SpecOf(const CoordinatorArgs& args, const std::string& job) {
  const Config& c = args.config;
  return {job,
          args.command,
          c.nodes,
          c.spares,
          c.nproc_per_node,
          c.seed,
          c.timeouts,
          {c.limit_restarts, c.limit_recoveries, c.limit_window},
          c.recovery_worker == "spare"};
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
    if (!outcome.reason.empty() && outcome.exit_status != 0) Complain(outcome.reason, 0);
    return outcome.exit_status;
  }

 private:
  Status Prepare();
  Status PrepareDirectory();
  Status TakeUp(std::optional<PersistentState> stored);
  Status TakeToken();
  Status RefuseEnded(const PersistentState& ended);
  Status Listen();
  void MakeLoop();
  CoordinatorPorts MakePorts();
  Status Persist(const PersistentState& state);
  void LogInput(Time now, const Event& event, const std::vector<Action>& actions);
  void EndInputs(const Status& status);
  void LogNote(const Note& note, Time now);
  void FlushEvents();
  void TellRoom();
  void WriteSnapshot();
  bool DirectoryIsGone() const { return ::access(dir_.c_str(), F_OK) != 0 && errno == ENOENT; }
  static std::string Changed(const std::string& before, const Status& status, const std::string& what);

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
  std::string events_error_, snapshot_error_, store_error_;
  Time events_at_{};
  CrashPoint crash_;
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
  LOCUM_RETURN_IF_ERROR(CheckRoom(dir_));
  auto store = Store::Open(dir_);
  if (!store.ok()) return store.status();
  store_ = std::move(*store);
  auto stored = store_->Load();
  if (!stored.ok()) return stored.status();
  LOCUM_RETURN_IF_ERROR(TakeUp(std::move(*stored)));

  LOCUM_RETURN_IF_ERROR(TakeToken());
  auto events = EventLog::Open(dir_ + "/" + kEventsFile);
  if (!events.ok()) return events.status();
  events_ = std::move(*events);
  return OkStatus();
}

Status Session::TakeToken() {
  if (term_ > Term(1) && args_.config.token_file.empty()) {
    auto known = FindToken("", dir_);
    if (known.status().code() == Code::kUnavailable) {
      return Refused(dir_ + "/" + kTokenFile + " is missing, and the nodes of the unfinished job " + spec_.job +
                     " know no other token; give the one that their agents were started with by --token-file or " +
                     kTokenVariable);
    }
  }
  auto token = EnsureToken(args_.config.token_file, dir_);
  if (!token.ok()) return token.status();
  token_ = *token;
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
  auto inputs = InputLog::CreateIn(dir_, term_, args_.config.input_log_mib << 20);
  if (!inputs.ok()) return inputs.status();
  inputs_ = std::move(*inputs);
  wire::InputRecord record;
  *record.mutable_start() = ToWire(spec_, term_, cluster, stored ? &*stored : nullptr);
  record.mutable_start()->set_version(kVersion);
  LOCUM_RETURN_IF_ERROR(inputs_->Append(record.SerializeAsString()));
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
  EndInputs(inputs_->Append(record.SerializeAsString()));
}

// What follows a hole cannot be replayed, so it ends with its first error.
void Session::EndInputs(const Status& status) {
  if (status.ok()) return;
  Complain(status.message() + "; the input log ends here", 0);
  inputs_.reset();
}

void Session::LogNote(const Note& note, Time now) {
  std::string line = FormatEvent(note, term_, now, UnixNow());
  // Whoever reads that the job has ended finds in the snapshot how, and where the ranks' logs are.
  if (ToldEnd(line)) WriteSnapshot();
  events_error_ = Changed(events_error_, events_->Append(line), "; events wait in memory until there is room");
  snapshot_due_ = true;
}

// Complains of an error when it is a new one. Returns its text.
std::string Session::Changed(const std::string& before, const Status& status, const std::string& what) {
  std::string error = status.ok() ? "" : status.message();
  if (error != before && !error.empty()) Complain(error + what, 0);
  return error;
}

void Session::FlushEvents() {
  if (events_->waiting() == 0 || Now() < events_at_) return;
  events_at_ = Now() + kStoreRetry;
  events_error_ = Changed(events_error_, events_->Flush(), "; events wait in memory until there is room");
}

// What cannot be written now is the first sign that the store will not be writable when it counts.
void Session::TellRoom() {
  const std::string& error = !events_error_.empty() ? events_error_ : snapshot_error_;
  if (error.empty()) return loop_->ReportRoom("");
  loop_->ReportRoom(error + (DirectoryIsGone() ? kDirectoryGone
                                               : "; free space in " + dir_ +
                                                     " before a node fails: without it none can be replaced"));
}

Status Session::Persist(const PersistentState& state) {
  Status status = store_->Save(state);
  if (status.ok()) {
    term_ = state.term;  // a job that is taken over brings a higher one
    store_error_.clear();
    return status;
  }
  status = Internal(status.message() + (DirectoryIsGone() ? kDirectoryGone
                                                          : "; free space in " + dir_ +
                                                                " (or mend its disk): nothing is decided until this "
                                                                "can be written, training goes on meanwhile"));
  store_error_ = Changed(store_error_, status, "");
  return status;
}

CoordinatorPorts Session::MakePorts() {
  CoordinatorPorts ports;
  ports.persist = [this](const PersistentState& state) {
    crash_.Pass();
    return Persist(state);
  };
  ports.welcome = [this](const SendWelcome& a) { server_->SendWelcome(a.stream, a.welcome); };
  ports.refuse = [this](const RefuseNode& a) { server_->Refuse(a.stream, a.reason, a.end); };
  ports.order = [this](const SendOrder& a) {
    crash_.Pass();
    server_->SendOrder(a.stream, a.order);
  };
  ports.answer = [this](const Answer& a) { server_->Answer(a.request, a.status); };
  ports.note = [this](const Note& note, Time now) { LogNote(note, now); };
  ports.input = [this](Time now, const Event& event, const std::vector<Action>& actions) {
    LogInput(now, event, actions);
  };
  ports.idle = [this] {
    if (inputs_ != nullptr) EndInputs(inputs_->Flush());
    FlushEvents();
    // Without anything new once a second, so that what a dead coordinator leaves is not old.
    const auto due = [this] {
      return snapshot_at_ + (snapshot_due_ ? Duration(0) : Duration(std::chrono::seconds(1)));
    };
    if (Now() >= due()) WriteSnapshot();
    TellRoom();
    return due();
  };
  return ports;
}

void Session::WriteSnapshot() {
  snapshot_due_ = false;
  snapshot_at_ = Now() + kSnapshotPause;
  Status status = WriteFileAtomically(dir_ + "/" + kStatusFile, DumpJson(StatusJson(core_->View()), 1), 0644);
  snapshot_error_ = Changed(snapshot_error_, status, "");
}

void Session::MakeLoop() {
  CoordinatorCore core{[this](const Event& event, Time now) {
                         std::vector<Action> actions = core_->Step(event, now);
                         crash_.See(actions);
                         return actions;
                       },
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
  // Each agent is a descriptor, and so is each stranger who connects until it is turned away.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = std::max(files.rlim_cur, std::min<rlim_t>(files.rlim_max, kMaxDescriptors));
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  return Session(args).Run();
}

int Complain(const std::string& text, int status) {
  std::fprintf(stderr, "locum: %s\n", text.c_str());
  return status;
}

}  // namespace locum
