#include "cli/replay.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "adapters/grpc/convert.h"

namespace locum {
namespace {

constexpr Time kLatest{INT64_MAX / 2};  // so that no deadline is beyond what can be counted

}  // namespace

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
  const Time at{input.now_ns()};
  if (at < now || at > kLatest) {
    error = "input " + std::to_string(inputs) + " cannot be read: its time, " + std::to_string(at.ns) +
            " ns, does not follow the one before";
    return false;
  }
  now = at;
  auto begin = std::chrono::steady_clock::now();
  std::vector<Action> actions = core->Step(*event, now);
  took += std::chrono::steady_clock::now() - begin;
  if (verbose) {
    std::printf("%llu at %lld ns: %s\n", static_cast<unsigned long long>(inputs),
                static_cast<long long>(input.now_ns()), input.event().ShortDebugString().c_str());
  }
  size_t logged = static_cast<size_t>(input.actions_size());
  for (size_t i = 0; i < std::max(actions.size(), logged); ++i) {
    std::string is = i < actions.size() ? ToWire(actions[i]).ShortDebugString() : "nothing";
    std::string then = i < logged ? input.actions(static_cast<int>(i)).ShortDebugString() : "nothing";
    if (verbose) std::printf("    %s\n", is.c_str());
    if (is == then) continue;
    error = "input " + std::to_string(inputs) + " (" + input.event().ShortDebugString() +
            ")\n  was answered:  " + then + "\n  is answered:   " + is;
    return false;
  }
  ++inputs;
  answers += actions.size();
  return true;
}

}  // namespace locum
