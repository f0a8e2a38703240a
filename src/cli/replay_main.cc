// `locum replay DIR`: steps the core through what it was told and compares what it answers with what it answered then.
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "adapters/eventlog/input_log.h"
#include "adapters/grpc/convert.h"
#include "adapters/sqlite/store.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"

namespace locum {
namespace {

struct Replay {
  bool verbose = false;
  std::unique_ptr<Coordinator> core;
  uint64_t inputs = 0, answers = 0;
  Duration took{};
  std::string error;
  std::string foreign;  // why this locum cannot tell

  bool Take(std::string_view payload);
  bool TakeInput(const wire::CoreInput& input);
};

bool Replay::Take(std::string_view payload) {
  wire::InputRecord record;
  if (!record.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    error = "a record cannot be read";
    return false;
  }
  if (record.has_start()) {
    if (const std::string& version = record.start().version(); version != kVersion) {
      foreign = "was written by " + (version.empty() ? "an earlier locum" : "locum " + version) + "; this locum (" +
                kVersion + ") may decide otherwise. Replay it with the locum that wrote it";
      return false;
    }
    auto start = FromWire(record.start());
    if (!start.ok()) {
      error = "the start cannot be read: " + start.status().message();
      return false;
    }
    if (verbose) std::printf("start: %s\n", record.start().ShortDebugString().c_str());
    core = std::make_unique<Coordinator>(start->spec, start->term, start->cluster, start->stored);
    return true;
  }
  if (record.has_ended()) return false;
  if (core == nullptr) {
    error = "the first record is not a start";
    return false;
  }
  return TakeInput(record.input());
}

bool Replay::TakeInput(const wire::CoreInput& input) {
  auto event = FromWire(input.event());
  if (!event.ok()) {
    error = "input " + std::to_string(inputs) + " cannot be read: " + event.status().message();
    return false;
  }
  auto begin = std::chrono::steady_clock::now();
  std::vector<Action> actions = core->Step(*event, Time{input.now_ns()});
  took += std::chrono::steady_clock::now() - begin;
  if (verbose) {
    std::printf("%llu at %lld ns: %s\n", static_cast<unsigned long long>(inputs),
                static_cast<long long>(input.now_ns()), input.event().ShortDebugString().c_str());
  }
  size_t logged = static_cast<size_t>(input.actions_size());
  for (size_t i = 0; i < std::max(actions.size(), logged); ++i) {
    std::string now = i < actions.size() ? ToWire(actions[i]).ShortDebugString() : "nothing";
    std::string then = i < logged ? input.actions(static_cast<int>(i)).ShortDebugString() : "nothing";
    if (verbose) std::printf("    %s\n", now.c_str());
    if (now == then) continue;
    error = "input " + std::to_string(inputs) + " (" + input.event().ShortDebugString() +
            ")\n  was answered:  " + then + "\n  is answered:   " + now;
    return false;
  }
  ++inputs;
  answers += actions.size();
  return true;
}

}  // namespace

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
