// `locum status`, `locum events`, `locum failback`.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <thread>

#include "adapters/eventlog/event_log.h"
#include "adapters/grpc/client.h"
#include "adapters/sqlite/store.h"
#include "cli/commands.h"
#include "cli/event_text.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/net.h"
#include "cli/status_json.h"

namespace locum {
namespace {

constexpr auto kFollowPause = std::chrono::milliseconds(100);
constexpr auto kFailbackWait = std::chrono::minutes(30);

struct Found {
  std::string dir;                     // empty when asked by address
  std::unique_ptr<GrpcClient> client;  // null when no coordinator is known
};

// What is there but cannot be read is said as `locum run` and `locum coordinator` say it.
Status CheckReadable(const std::string& dir) {
  Status status = Store::OpenToRead(dir).status();
  const bool is_told =
      status.code() == Code::kInvalid || status.code() == Code::kRefused || status.code() == Code::kCorrupt;
  return is_told ? Invalid(status.message()) : OkStatus();
}

// kInvalid: bad use.
Result<Found> Find(const Target& target) {
  Found found;
  if (!target.coordinator.empty()) {
    auto address = ParseHostPort(target.coordinator, "--coordinator");
    if (!address.ok()) return address.status();
    auto token = FindToken(target.token_file, "");
    if (!token.ok()) return Invalid(token.status().message());
    found.client = std::make_unique<GrpcClient>(target.coordinator, *token);
    return found;
  }
  found.dir = target.dir.empty() ? std::string(kRunsDir) + "/" + kLatest : target.dir;
  if (::access(found.dir.c_str(), F_OK) != 0) {
    return Invalid(target.dir.empty()
                       ? "no job was run from here (./.locum/latest is missing); name one by --dir or --coordinator"
                       : found.dir + " does not exist");
  }
  LOCUM_RETURN_IF_ERROR(CheckReadable(found.dir));
  auto file = ReadCoordinatorFile(found.dir);
  if (file.ok()) {
    // DIR/token belongs to the coordinator of DIR, so it comes before the environment.
    std::string own = found.dir + "/" + kTokenFile;
    auto token = !target.token_file.empty() ? ReadToken(target.token_file) : ReadToken(own);
    if (!token.ok()) return Invalid(token.status().message());
    found.client = std::make_unique<GrpcClient>(file->address, *token);
  }
  return found;
}

Result<Json> StatusFromDir(const std::string& dir) {
  auto store = Store::OpenToRead(dir);
  if (!store.ok()) return store.status();
  auto stored = (*store)->Load();
  if (!stored.ok()) return Invalid(stored.status().message());
  if (!stored->has_value()) return Unavailable(dir + " holds no job yet");
  auto text = ReadFile(dir + "/" + kStatusFile, 64u << 20);
  return StatusJson(**stored, text.ok() ? Json::parse(*text, nullptr, false) : Json());
}

Result<Json> GetStatus(const Found& found) {
  if (found.client != nullptr) {
    auto view = found.client->View();
    if (view.ok()) return StatusJson(*view);
    // A coordinator that was killed leaves its file; then DIR answers.
    if (found.dir.empty() || view.status().code() != Code::kUnavailable) return view.status();
  }
  return StatusFromDir(found.dir);
}

class EventSource {
 public:
  explicit EventSource(const Found* found) : found_(found) {}

  // Whole new lines; empty when there are none now.
  Result<std::string> Next() {
    if (!found_->dir.empty()) return NextOfFile();
    auto lines = found_->client->Events(offset_);
    if (!lines.ok()) return lines.status();
    offset_ = lines->next_offset;
    return lines->text;
  }

 private:
  Result<std::string> NextOfFile() {
    std::string path = found_->dir + "/" + kEventsFile;
    std::FILE* file = std::fopen(path.c_str(), "re");
    if (file == nullptr) return std::string();
    std::string text(1u << 20, '\0');
    ::fseeko(file, static_cast<off_t>(offset_), SEEK_SET);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    size_t end = text.rfind('\n');
    text.resize(end == std::string::npos ? 0 : end + 1);
    offset_ += text.size();
    return text;
  }

  const Found* found_;
  uint64_t offset_ = 0;
};

template <class F>
void EachLine(const std::string& text, F each) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    each(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

// Where `wanted` needs a coordinator and none runs for `dir`.
int ComplainOfNone(const std::string& dir, const std::string& wanted, const std::string& what_to_do) {
  auto store = Store::OpenToRead(dir);
  auto stored = store.ok() ? (*store)->Load() : Result<std::optional<PersistentState>>(store.status());
  const bool known = stored.ok() && stored->has_value();
  if (known && ((*stored)->phase == JobPhase::kFinished || (*stored)->phase == JobPhase::kFailed)) {
    return Complain("the job " + (*stored)->spec.job + " in " + dir + " has " +
                        ((*stored)->phase == JobPhase::kFinished ? "finished" : "failed") + "; there is nothing to " +
                        wanted,
                    kExitFailed);
  }
  return Complain("no coordinator runs for " + dir + "; " + what_to_do, kExitFailed);
}

int FailedOr(const Status& status) {
  return Complain(status.message(), status.code() == Code::kInvalid ? kExitUsage : kExitFailed);
}

}  // namespace

int StatusMain(const Target& target, bool json) {
  auto found = Find(target);
  if (!found.ok()) return FailedOr(found.status());
  auto status = GetStatus(*found);
  if (!status.ok()) return FailedOr(status.status());
  std::cout << (json ? DumpJson(*status, 2) : StatusTable(*status, found->dir)) << std::flush;
  return std::cout.good() ? kExitOk : kExitFailed;
}

int EventsMain(const Target& target, bool json, bool follow) {
  auto found = Find(target);
  if (!found.ok()) return FailedOr(found.status());
  const std::string history = found->dir + "/" + kEventsFile;
  if (!found->dir.empty() && !follow && ::access(history.c_str(), F_OK) != 0) {
    return Complain(found->dir + " holds no job (" + history + " does not exist)", kExitFailed);
  }
  EventSource source(&*found);
  EventTeller teller;
  bool ended = !follow;
  while (true) {
    auto text = source.Next();
    if (!text.ok()) return Complain(text.status().message(), kExitFailed);
    EachLine(*text, [&](const std::string& line) {
      std::string shown = json ? line : teller.Text(line);
      if (!shown.empty()) std::cout << shown << "\n";
    });
    std::cout.flush();
    if (!std::cout.good()) return kExitFailed;
    if (!text->empty()) continue;
    if (ended) return kExitOk;
    // One more look after the coordinator is gone, for its last lines.
    if (!found->dir.empty()) ended = ::access((found->dir + "/" + kCoordinatorFile).c_str(), F_OK) != 0;
    if (!ended) std::this_thread::sleep_for(kFollowPause);
  }
}

int AdoptMain(const Target& target) {
  auto found = Find(target);
  if (!found.ok()) return FailedOr(found.status());
  if (found->client == nullptr) {
    return ComplainOfNone(found->dir, "take over",
                          "start one where the lost one was, with the same command and the same token: locum "
                          "coordinator --dir " +
                              found->dir + " --listen HOST:PORT -- COMMAND...");
  }
  if (Status status = found->client->Adopt(); !status.ok()) return FailedOr(status);
  std::cout << "accepted: the nodes that train for the lost coordinator are taken over\n" << std::flush;
  return kExitOk;
}

int FailbackMain(const Target& target, const std::string& node, bool wait) {
  auto found = Find(target);
  if (!found.ok()) return FailedOr(found.status());
  if (found->client == nullptr) {
    return ComplainOfNone(found->dir, "give back", "start it with: locum coordinator --dir " + found->dir);
  }
  EventSource source(&*found);
  while (wait) {  // what was is not what is waited for
    auto text = source.Next();
    if (!text.ok()) return Complain(text.status().message(), kExitFailed);
    if (text->empty()) break;
  }
  if (Status status = found->client->Failback(node); !status.ok()) return FailedOr(status);
  std::cout << "accepted: " << node << " gets its rank back at a step boundary\n" << std::flush;
  auto deadline = std::chrono::steady_clock::now() + kFailbackWait;
  while (wait && std::chrono::steady_clock::now() < deadline) {
    auto text = source.Next();
    if (!text.ok()) return Complain(text.status().message(), kExitFailed);
    bool done = false, failed = false;
    EachLine(*text, [&](const std::string& line) {
      Json event = Json::parse(line, nullptr, false);
      if (!IsEvent(event) || !event.contains("node") || event["node"] != node) return;
      const std::string name = event["name"];
      if (name != "failback_done" && name != "failback_cancelled" && name != "failback_failed") return;
      std::cout << EventText(line) << "\n" << std::flush;
      (name == "failback_done" ? done : failed) = true;
    });
    if (done) return kExitOk;
    if (failed) return Complain("the failback of " + node + " did not happen", kExitFailed);
    if (!found->client->View().ok())
      return Complain("the coordinator ended before " + node + " had its rank", kExitFailed);
    std::this_thread::sleep_for(kFollowPause);
  }
  return wait ? Complain("no failback_done within 30 minutes", kExitFailed) : kExitOk;
}

}  // namespace locum
