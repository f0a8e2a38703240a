#include "cli/start_dir.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "cli/files.h"

namespace locum {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 10> kCoordinatorFiles = {
    "lock",         "token",           "coordinator.json", "coordinator.json.tmp",
    "status.json",  "status.json.tmp", "token.tmp",        "store.db",
    "events.jsonl", "room.tmp"};
constexpr std::array<std::string_view, 3> kAgentFiles = {"keeper.lock", "keeper.sock", "agent.log"};
// With these a directory is one of Locum's, whatever else a person has put there.
constexpr std::array<std::string_view, 2> kMarks = {"store.db", "keeper.lock"};
// No reason to refuse either: what `locum run` makes beforehand, and what a new file system has.
constexpr std::array<std::string_view, 4> kHarmless = {kCoordinatorLog, "nodes", "output.log", "lost+found"};
constexpr std::string_view kWorker = "worker-";
constexpr size_t kNamed = 3;  // in a message

bool StartsWith(std::string_view text, std::string_view head) { return text.substr(0, head.size()) == head; }
bool EndsWith(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}
template <size_t N>
bool IsIn(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::set<std::string> NamesIn(const std::string& path) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(path, error), end; !error && i != end; i.increment(error)) {
    names.insert(i->path().filename().string());
  }
  return names;
}

Status CheckForeign(const std::string& path, const std::string& setting, const std::set<std::string>& names) {
  if (path == "/") return Invalid(setting + ": / is no directory for a job or a node; name one of its own");
  for (std::string_view mark : kMarks) {
    if (names.count(std::string(mark)) != 0) return OkStatus();
  }
  std::string foreign;
  size_t count = 0;
  for (const std::string& name : names) {
    const bool ours = IsCoordinatorFile(name) || IsAgentFile(name) || StartsWith(name, kWorker);
    if (ours || IsIn(kHarmless, name) || EndsWith(name, ".toml")) continue;
    if (++count <= kNamed) foreign += (foreign.empty() ? "" : ", ") + name;
  }
  if (count == 0) return OkStatus();
  if (count > kNamed) foreign += ", ...";
  return Invalid(setting + ": " + path + " holds files that are not Locum's (" + foreign +
                 "); name a new or an empty directory");
}

}  // namespace

bool IsCoordinatorFile(const std::string& name) {
  return IsIn(kCoordinatorFiles, name) || StartsWith(name, "store.db-") ||
         (StartsWith(name, "inputs-") && EndsWith(name, ".log"));
}

bool IsRunFile(const std::string& name) { return IsCoordinatorFile(name) || name == kCoordinatorLog; }

bool IsAgentFile(const std::string& name) { return IsIn(kAgentFiles, name); }

bool HoldsWorkerFiles(const std::string& path) {
  const std::set<std::string> names = NamesIn(path);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return StartsWith(name, kWorker); });
}

Status StartDir::Check(const std::string& path, const std::string& setting) {
  return CheckForeign(path, setting, NamesIn(path));
}

Status StartDir::Make(const std::string& path, const std::string& setting) {
  LOCUM_RETURN_IF_ERROR(Check(path, setting));
  path_ = path;
  for (fs::path at = path; !at.empty() && ::access(at.c_str(), F_OK) != 0; at = at.parent_path()) {
    made_.insert(made_.begin(), at.string());
    if (at == at.parent_path()) break;
  }
  before_ = NamesIn(path);
  return MakeDirectory(path);
}

void StartDir::Guard(bool (*ours)(const std::string&), const std::string& lock_file) {
  ours_ = ours;
  if (lock_file.empty()) return;
  const bool lock_is_new = before_.count(lock_file) == 0;
  before_ = NamesIn(path_);
  if (lock_is_new) before_.erase(lock_file);
}

void StartDir::Keep() {
  ours_ = nullptr;
  made_.clear();
}

void StartDir::Clear() {
  if (ours_ != nullptr) {
    for (const std::string& name : NamesIn(path_)) {
      if (before_.count(name) == 0 && ours_(name)) ::unlink((path_ + "/" + name).c_str());
    }
  }
  // Only empty ones go.
  for (auto i = made_.rbegin(); i != made_.rend(); ++i) ::rmdir(i->c_str());
  Keep();
}

StartDir::~StartDir() { Clear(); }

}  // namespace locum
