#include "cli/files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cluster.h"
#include "cli/exit_codes.h"

namespace locum {
namespace {

constexpr size_t kMaxToken = 256;
constexpr size_t kTokenBytes = 24;
constexpr size_t kReadAtOnce = 64u << 10;

Result<std::string> CheckToken(std::string token, const std::string& where) {
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' ')) token.pop_back();
  if (token.empty()) return Invalid(where + " holds no token");
  if (token.size() > kMaxToken) return Invalid(where + ": a token has at most 256 characters");
  for (char c : token) {
    if (c < '!' || c > '~') return Invalid(where + ": a token has printable ASCII characters only, and no space");
  }
  return token;
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT ? Unavailable(path + " does not exist") : ErrnoStatus(errno, "cannot open " + path);
  std::string data;
  size_t done = 0;
  while (done <= limit) {
    data.resize(std::min(limit + 1, done + kReadAtOnce));  // not the limit at once: most files are small
    ssize_t n = ::read(fd, data.data() + done, data.size() - done);
    if (n < 0) {
      int err = errno;
      ::close(fd);
      return ErrnoStatus(err, "cannot read " + path);
    }
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  ::close(fd);
  if (done > limit) return Invalid(path + " is larger than " + std::to_string(limit) + " bytes");
  data.resize(done);
  return data;
}

Status WriteFileAtomically(const std::string& path, const std::string& content, unsigned mode) {
  std::string temporary = path + ".tmp";
  ::unlink(temporary.c_str());  // of a process that was killed
  int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return ErrnoStatus(errno, "cannot create " + temporary);
  int err = 0;
  for (size_t done = 0; done < content.size() && err == 0;) {
    ssize_t n = ::write(fd, content.data() + done, content.size() - done);
    if (n > 0) done += static_cast<size_t>(n);
    if (n <= 0 && errno != EINTR) err = n == 0 ? ENOSPC : errno;
  }
  ::close(fd);
  if (err == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) err = errno;
  if (err != 0) {
    ::unlink(temporary.c_str());
    return ErrnoStatus(err, "cannot write " + path);
  }
  return OkStatus();
}

Status MakeDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error == std::errc::no_space_on_device)
    return Internal("cannot make the directory " + path + ": " + error.message());
  if (error || !std::filesystem::is_directory(path)) {
    return Invalid("cannot make the directory " + path + (error ? ": " + error.message() : ": it is a file"));
  }
  return OkStatus();
}

std::string OwnProgram() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  // Replaced by a newer one meanwhile: the link still leads to the file that runs.
  return error || ::access(path.c_str(), X_OK) != 0 ? "/proc/self/exe" : path;
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  std::string text = error ? path : absolute.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::string DirSetting(const Config& config, const std::string& key) {
  return config.Has(key) ? config.origin.at(key) : "--dir";
}

Status ExplainStart(const Status& status, const std::string& dir) {
  if (status.code() != Code::kInternal) return status;
  return Internal(status.message() + "; free space in " + dir + " (or mend its disk), or choose another --dir");
}

int StartExit(const Status& status) { return status.code() == Code::kInternal ? kExitFailed : kExitUsage; }

void OpenStandardDescriptors() {
  for (int fd : {0, 1, 2}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    LOCUM_CHECK(::open("/dev/null", O_RDWR) == fd);  // the lowest that is free
  }
}

Status CheckDescriptors(size_t least) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= least) return OkStatus();
  return Invalid("the limit of open files is " + std::to_string(limit.rlim_cur) + ", and at least " +
                 std::to_string(least) + " are needed; raise it (ulimit -n " + std::to_string(least) + ")");
}

std::string RandomHex(size_t bytes) {
  std::string raw(bytes, '\0');
  LOCUM_CHECK(::getentropy(raw.data(), raw.size()) == 0);
  std::string text;
  for (char c : raw) {
    text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

uint64_t RandomNumber() {
  uint64_t value = 0;
  while (value == 0) LOCUM_CHECK(::getentropy(&value, sizeof value) == 0);
  return value;
}

std::string NewJobId() {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S-", &parts);
  return text + RandomHex(2);
}

Status PointLatest(const std::string& job) {
  std::string link = std::string(kRunsDir) + "/" + kLatest;
  std::string temporary = link + "." + RandomHex(4) + ".tmp";
  if (::symlink(job.c_str(), temporary.c_str()) != 0) return ErrnoStatus(errno, "cannot create " + temporary);
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    int err = errno;
    ::unlink(temporary.c_str());
    return ErrnoStatus(err, "cannot create " + link);
  }
  return OkStatus();
}

Result<std::string> ReadToken(const std::string& path) {
  auto text = ReadFile(path, kMaxTokenFile);
  if (!text.ok()) return text.status().Annotate("token");
  return CheckToken(*text, path);
}

Result<std::string> FindToken(const std::string& file, const std::string& dir) {
  if (!file.empty()) return ReadToken(file);
  if (const char* value = std::getenv(kTokenVariable); value != nullptr && *value != '\0') {
    return CheckToken(value, kTokenVariable);
  }
  if (!dir.empty()) return ReadToken(dir + "/" + kTokenFile);
  return Invalid(std::string("no token: give the coordinator's DIR/token by --token-file or ") + kTokenVariable);
}

Result<std::string> EnsureToken(const std::string& file, const std::string& dir) {
  auto token = FindToken(file, dir);
  if (!token.ok()) {
    if (token.status().code() != Code::kUnavailable || !file.empty()) return token;
    token = RandomHex(kTokenBytes);
  }
  std::string path = dir + "/" + kTokenFile;
  auto present = ReadFile(path, kMaxTokenFile);
  if (!present.ok() || *present != *token + "\n") {
    LOCUM_RETURN_IF_ERROR(WriteFileAtomically(path, *token + "\n", 0600));
  }
  return token;
}

Result<std::string> FindProgram(const std::string& name) {
  auto kind = [](const std::string& path) {  // 0 absent, 1 not executable, 2 good
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return 0;
    return S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0 ? 2 : 1;
  };
  if (name.empty()) return Invalid("the command is empty");
  if (name.find('/') != std::string::npos) {
    int found = kind(name);
    if (found == 2) return name;
    if (found == 1) return Refused("'" + name + "' is not an executable file");
    return Invalid("'" + name + "' does not exist");
  }
  const char* path = std::getenv("PATH");
  std::string list = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  std::string blocked;
  for (size_t begin = 0; begin <= list.size();) {
    size_t end = std::min(list.find(':', begin), list.size());
    std::string candidate = (end == begin ? "." : list.substr(begin, end - begin)) + "/" + name;
    int found = kind(candidate);
    if (found == 2) return candidate;
    if (found == 1 && blocked.empty()) blocked = candidate;
    begin = end + 1;
  }
  if (!blocked.empty()) return Refused("'" + blocked + "' is not an executable file");
  return Invalid("'" + name + "' was not found in PATH");
}

Status WriteCoordinatorFile(const std::string& dir, const CoordinatorFile& file) {
  nlohmann::ordered_json json;
  json["address"] = file.address;
  json["pid"] = file.pid;
  json["job"] = file.job;
  json["version"] = file.version;
  return WriteFileAtomically(dir + "/" + kCoordinatorFile, json.dump() + "\n", 0644);
}

Result<CoordinatorFile> ReadCoordinatorFile(const std::string& dir) {
  std::string path = dir + "/" + kCoordinatorFile;
  auto text = ReadFile(path, 64u << 10);
  if (!text.ok()) return text.status();
  auto json = nlohmann::json::parse(*text, nullptr, false);
  CoordinatorFile file;
  try {
    file.address = json.at("address").get<std::string>();
    const auto& pid = json.at("pid");
    if (!pid.is_number_integer() || pid < 1 || pid > INT32_MAX) return Corrupt(path + " names no process");
    file.pid = pid.get<int>();
    file.job = json.at("job").get<std::string>();
    file.version = json.at("version").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return Corrupt(path + " is not what a coordinator writes");
  }
  return file;
}

}  // namespace locum
