// `locum run`: checks the command and the directory before anything starts.
#include <filesystem>
#include <optional>

#include "adapters/eventlog/event_log.h"
#include "adapters/sqlite/directory.h"
#include "adapters/sqlite/store.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/local_run.h"
#include "cli/net.h"
#include "cli/start_dir.h"

namespace locum {
namespace {

// A run begins in a directory that holds no job.
Status CheckUnused(const std::string& dir) {
  auto store = Store::OpenToRead(dir);
  if (!store.ok() && store.status().code() != Code::kUnavailable) return store.status();
  auto stored = store.ok() ? (*store)->Load() : Result<std::optional<PersistentState>>(std::nullopt);
  if (!stored.ok()) return stored.status();
  if (!stored->has_value()) {
    std::error_code error;
    if (std::filesystem::file_size(dir + "/" + kEventsFile, error) == 0 || error) return OkStatus();
    return Refused(dir + " holds the history of a job (" + kEventsFile +
                   ") whose store is lost; choose another --dir, " +
                   "or take its nodes up with 'locum coordinator --dir " + dir + " -- COMMAND...'");
  }
  const PersistentState& state = **stored;
  if (state.phase == JobPhase::kFinished || state.phase == JobPhase::kFailed) {
    return Refused(dir + " holds the job " + state.spec.job + ", which has " +
                   (state.phase == JobPhase::kFinished ? "finished" : "failed") +
                   "; it can be read (locum status, locum events) but not run again. Choose another --dir");
  }
  return Refused(dir + " holds the unfinished job " + state.spec.job + "; 'locum coordinator --dir " + dir +
                 "' takes it up. Or choose another --dir");
}

// DIR, taken hold of before anything in it is read: nobody else starts, writes or clears there while this run lives.
struct Held {
  std::optional<DirectoryLock> lock;
  StartDir start;  // ends before the lock
};

// Makes DIR ready; its token.
Result<std::string> Prepare(const Config& config, const std::string& dir, Held* held) {
  LOCUM_RETURN_IF_ERROR(CheckPathLength(dir));
  LOCUM_RETURN_IF_ERROR(held->start.Make(dir, DirSetting(config, "job.dir")));
  LOCUM_RETURN_IF_ERROR(CheckFilesystem(dir));
  auto taken = DirectoryLock::Take(dir);
  if (!taken.ok()) return taken.status();
  held->lock.emplace(std::move(*taken));
  held->start.Guard(IsRunFile, kLockFile);
  LOCUM_RETURN_IF_ERROR(CheckRoom(dir));
  LOCUM_RETURN_IF_ERROR(CheckUnused(dir));
  return EnsureToken(config.token_file, dir);
}

}  // namespace

int RunMain(const RunArgs& args) {
  const Config& config = args.config;
  // The coordinator of a run listens on the loopback; its config has to be one that a coordinator takes all the same.
  if (auto listen = ListenAddress(config); !listen.ok()) return Complain(listen.status().message(), kExitUsage);
  if (Status enough = CheckDescriptors(kLeastDescriptors + config.nodes + config.spares); !enough.ok()) {
    return Complain(enough.message(), kExitUsage);
  }
  auto program = FindProgram(args.command[0]);
  if (!program.ok()) {
    return Complain("cannot run the command: " + program.status().message(),
                    program.status().code() == Code::kRefused ? kExitNotExecutable : kExitNotFound);
  }
  std::string job = NewJobId();
  bool default_dir = args.config.dir.empty();
  std::string dir = AbsolutePath(default_dir ? std::string(kRunsDir) + "/" + job : args.config.dir);
  Held held;
  auto token = Prepare(args.config, dir, &held);
  if (!token.ok()) {
    const Status why = ExplainStart(token.status(), dir);
    return Complain(why.message(), StartExit(why));
  }
  // The start has succeeded when the coordinator listens; until then nothing points at it, and nothing is kept.
  auto started = [&] {
    held.start.Keep();
    return default_dir ? PointLatest(job) : OkStatus();
  };
  return LocalRun(args, dir, job, *token, held.lock->fd(), started).Main();
}

}  // namespace locum
