// `locum replay DIR`: steps the core through what it was told and compares what it answers with what it answered then.
#include <unistd.h>

#include <cstdio>

#include "adapters/eventlog/input_log.h"
#include "adapters/sqlite/store.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/replay.h"

namespace locum {

int ReplayMain(const std::string& dir, bool verbose) {
  if (::access(dir.c_str(), F_OK) != 0) return Complain(dir + " does not exist", kExitUsage);
  Status store = Store::OpenToRead(dir).status();
  if (!store.ok() && store.code() != Code::kUnavailable) return Complain(store.message(), kExitUsage);
  std::vector<std::string> files = InputLogs(dir);
  if (files.empty()) {
    return Complain(dir + " holds no input logs (inputs-<term>.log); name the DIR of a coordinator", kExitUsage);
  }
  for (const std::string& file : files) {
    Replay replay;
    replay.verbose = verbose;
    Status status = ReadInputLog(file, [&](std::string_view payload) { return replay.Take(payload); });
    if (!status.ok()) return Complain(status.message(), kExitUsage);
    if (!replay.foreign.empty()) return Complain(file + " " + replay.foreign, kExitUsage);
    if (!replay.error.empty()) return Complain(file + ": " + replay.error, kExitFailed);
    std::printf("%s: %llu inputs, %llu answers, all as they were; %.1f ms in the core\n", file.c_str(),
                static_cast<unsigned long long>(replay.inputs), static_cast<unsigned long long>(replay.answers),
                static_cast<double>(replay.took.count()) / 1e6);
  }
  return kExitOk;
}

}  // namespace locum
