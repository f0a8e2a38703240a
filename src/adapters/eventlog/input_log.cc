#include "adapters/eventlog/input_log.h"

#include <fcntl.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <utility>

#include "base/codec.h"

namespace locum {
namespace {

constexpr char kMagic[] = "LOCINPT1";
constexpr size_t kFlushBytes = 256u << 10;
constexpr const char* kPrefix = "inputs-";
constexpr const char* kSuffix = ".log";
constexpr unsigned kMaxAttempts = 1000;

}  // namespace

std::string InputLogName(Term term, unsigned attempt) {
  return kPrefix + std::to_string(term.value) + (attempt > 1 ? "." + std::to_string(attempt) : "") + kSuffix;
}

std::vector<std::string> InputLogs(const std::string& dir) {
  std::vector<std::tuple<uint64_t, uint64_t, std::string>> found;
  const auto number = [](const std::string& digits) {
    return !digits.empty() && digits.size() <= 18 && digits.find_first_not_of("0123456789") == std::string::npos;
  };
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    std::string name = entry.path().filename();
    size_t prefix = std::strlen(kPrefix), suffix = std::strlen(kSuffix);
    if (name.size() <= prefix + suffix || name.compare(0, prefix, kPrefix) != 0 ||
        name.compare(name.size() - suffix, suffix, kSuffix) != 0) {
      continue;
    }
    std::string digits = name.substr(prefix, name.size() - prefix - suffix), attempt = "1";
    if (size_t dot = digits.find('.'); dot != std::string::npos) {
      attempt = digits.substr(dot + 1);
      digits.resize(dot);
    }
    if (!number(digits) || !number(attempt)) continue;
    found.emplace_back(std::stoull(digits), std::stoull(attempt), entry.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [term, attempt, path] : found) paths.push_back(std::move(path));
  return paths;
}

Result<std::unique_ptr<InputLog>> InputLog::Create(const std::string& path, uint64_t limit) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, "cannot create " + path);
  return Begin(fd, path, limit);
}

Result<std::unique_ptr<InputLog>> InputLog::CreateIn(const std::string& dir, Term term, uint64_t limit) {
  for (unsigned attempt = 1; attempt <= kMaxAttempts; ++attempt) {
    const std::string path = dir + "/" + InputLogName(term, attempt);
    int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) return Begin(fd, path, limit);
    if (errno != EEXIST) return ErrnoStatus(errno, "cannot create " + path);
  }
  return Refused(dir + " holds " + std::to_string(kMaxAttempts) + " input logs of one term; remove them");
}

Result<std::unique_ptr<InputLog>> InputLog::Begin(int fd, const std::string& path, uint64_t limit) {
  std::unique_ptr<InputLog> log(new InputLog(fd, path, limit));
  log->pending_ = kMagic;
  log->size_ = log->pending_.size();
  LOCUM_RETURN_IF_ERROR(log->Flush());
  return log;
}

InputLog::~InputLog() {
  Status ignored = Flush();
  ::close(fd_);
}

Status InputLog::Append(std::string_view payload) {
  LOCUM_RETURN_IF_ERROR(failed_);
  size_t bytes = sizeof(uint32_t) + sizeof(uint64_t) + payload.size();
  if (size_ + bytes > limit_ || payload.size() > kMaxInputRecord) {
    return Refused("the input log has reached its limit (coordinator.input_log_mib)");
  }
  Writer head;
  head.U32(static_cast<uint32_t>(payload.size()));
  head.U64(XXH3_64bits(payload.data(), payload.size()));
  pending_ += head.data();
  pending_ += payload;
  size_ += bytes;
  return pending_.size() >= kFlushBytes ? Flush() : OkStatus();
}

Status InputLog::Flush() {
  LOCUM_RETURN_IF_ERROR(failed_);
  size_t done = 0;
  while (done < pending_.size()) {
    ssize_t n = ::write(fd_, pending_.data() + done, pending_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      int err = n < 0 ? errno : ENOSPC;
      pending_.clear();  // what follows a hole cannot be replayed
      failed_ = ErrnoStatus(err, "cannot write " + path_);
      return failed_;
    }
    done += static_cast<size_t>(n);
  }
  pending_.clear();
  return OkStatus();
}

Status ReadInputLog(const std::string& path, const std::function<bool(std::string_view)>& each) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Invalid("cannot open " + path);
  char magic[sizeof kMagic - 1];
  if (!file.read(magic, sizeof magic) || std::memcmp(magic, kMagic, sizeof magic) != 0) {
    return Corrupt(path + ": this is no input log, or one of another version; replay it with the locum that wrote it");
  }
  std::string payload;
  while (true) {
    char head[sizeof(uint32_t) + sizeof(uint64_t)];
    if (!file.read(head, sizeof head)) return OkStatus();
    Reader reader({head, sizeof head});
    uint32_t size = reader.U32();
    uint64_t hash = reader.U64();
    if (size > kMaxInputRecord)
      return Corrupt(path + " is damaged and cannot be replayed: a record of " + std::to_string(size) + " bytes");
    payload.resize(size);
    if (!file.read(payload.data(), size)) return OkStatus();
    if (XXH3_64bits(payload.data(), payload.size()) != hash)
      return Corrupt(path + " is damaged and cannot be replayed: a record's checksum is wrong");
    if (!each(payload)) return OkStatus();
  }
}

}  // namespace locum
