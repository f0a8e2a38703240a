// `locum run`: checks the command and the directory before anything starts.
#include <optional>

#include "adapters/sqlite/directory.h"
#include "adapters/sqlite/store.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/local_run.h"
#include "cli/start_dir.h"

namespace locum {
namespace {

// A run begins in a directory that holds no job.
Status CheckUnused(const std::string& dir) {
  auto store = Store::OpenToRead(dir);
  if (!store.ok()) return store.status().code() == Code::kUnavailable ? OkStatus() : store.status();
  auto stored = (*store)->Load();
  if (!stored.ok()) return stored.status();
  if (!stored->has_value()) return OkStatus();
  const PersistentState& state = **stored;
  if (state.phase == JobPhase::kFinished || state.phase == JobPhase::kFailed) {
    return Refused(dir + " holds the job " + state.spec.job + ", which has " +
                   (state.phase == JobPhase::kFinished ? "finished" : "failed") +
                   "; it can be read (locum status, locum events) but not run again. Choose another --dir");
  }
  return Refused(dir + " holds the unfinished job " + state.spec.job + "; 'locum coordinator --dir " + dir +
                 "' takes it up. Or choose another --dir");
}

// Makes DIR ready; its token. The lock is let go of again, for the coordinator.
Result<std::string> Prepare(const Config& config, const std::string& dir) {
  std::optional<DirectoryLock> lock;
  StartDir start;  // ends before the lock
  LOCUM_RETURN_IF_ERROR(start.Make(dir, DirSetting(config, "job.dir")));
  LOCUM_RETURN_IF_ERROR(CheckFilesystem(dir));
  auto taken = DirectoryLock::Take(dir);
  if (!taken.ok()) return taken.status();
  lock.emplace(std::move(*taken));
  start.Guard(IsCoordinatorFile, kLockFile);
  LOCUM_RETURN_IF_ERROR(CheckRoom(dir));
  LOCUM_RETURN_IF_ERROR(CheckUnused(dir));
  auto token = EnsureToken(config.token_file, dir);
  if (token.ok()) start.Keep();
  return token;
}

}  // namespace

int RunMain(const RunArgs& args) {
  auto program = FindProgram(args.command[0]);
  if (!program.ok()) {
    return Complain("cannot run the command: " + program.status().message(),
                    program.status().code() == Code::kRefused ? kExitNotExecutable : kExitNotFound);
  }
  std::string job = NewJobId();
  bool default_dir = args.config.dir.empty();
  std::string dir = AbsolutePath(default_dir ? std::string(kRunsDir) + "/" + job : args.config.dir);
  auto token = Prepare(args.config, dir);
  if (!token.ok()) return Complain(token.status().message(), kExitUsage);
  if (Status status = default_dir ? PointLatest(job) : OkStatus(); !status.ok()) {
    return Complain(status.message(), kExitUsage);
  }
  return LocalRun(args, dir, job, *token).Main();
}

}  // namespace locum
