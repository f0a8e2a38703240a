// `locum run`: checks the command and the directory before anything starts.
#include <unistd.h>

#include "adapters/sqlite/directory.h"
#include "adapters/sqlite/store.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/local_run.h"

namespace locum {
namespace {

// A run begins in a directory that holds no job.
Status CheckUnused(const std::string& dir) {
  LOCUM_RETURN_IF_ERROR(CheckFilesystem(dir));
  auto lock = DirectoryLock::Take(dir);
  if (!lock.ok()) return lock.status();
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
  Status status = MakeDirectory(dir);
  if (status.ok()) status = CheckUnused(dir);
  if (status.ok() && default_dir) status = PointLatest(job);
  if (!status.ok()) return Complain(status.message(), kExitUsage);
  auto token = EnsureToken(args.config.token_file, dir);
  if (!token.ok()) return Complain(token.status().message(), kExitUsage);
  return LocalRun(args, dir, job, *token).Main();
}

}  // namespace locum
