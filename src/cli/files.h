// Small things around files, directories and the token.
#pragma once

#include <string>

#include "adapters/config/config.h"
#include "base/status.h"

namespace locum {

inline constexpr const char* kTokenFile = "token";
inline constexpr const char* kCoordinatorFile = "coordinator.json";
inline constexpr const char* kCoordinatorLog = "coordinator.log";
inline constexpr const char* kStatusFile = "status.json";
inline constexpr const char* kRunsDir = ".locum";
inline constexpr const char* kLatest = "latest";
inline constexpr size_t kMaxTokenFile = 4096;
inline constexpr const char* kTokenVariable = "LOCUM_TOKEN";

Result<std::string> ReadFile(const std::string& path, size_t limit = 1u << 20);
// The whole new content or the whole old one, whoever reads.
Status WriteFileAtomically(const std::string& path, const std::string& content, unsigned mode);
Status MakeDirectory(const std::string& path);  // with its parents
// This program's file, to be started again.
std::string OwnProgram();
std::string AbsolutePath(const std::string& path);
// What messages about a directory are to call it: where its key was set, else "--dir".
std::string DirSetting(const Config& config, const std::string& key);

// How a start in `dir` that failed is told: what to do where the disk is the cause; and the exit status.
Status ExplainStart(const Status& status, const std::string& dir);
int StartExit(const Status& status);

// Opens /dev/null for each of standard input, output and error that is closed: else the next file or socket becomes one
// of them. First thing in a program.
void OpenStandardDescriptors();
// kInvalid when this process may not have as many open files.
inline constexpr size_t kLeastDescriptors = 64;
Status CheckDescriptors(size_t least);

// From the kernel.
std::string RandomHex(size_t bytes);
uint64_t RandomNumber();  // not 0

// "20261201-101500-3f2a", local time.
std::string NewJobId();
// Points ./.locum/latest at ./.locum/<job>.
Status PointLatest(const std::string& job);

// The text without white space at its end; refuses what cannot be a token.
Result<std::string> ReadToken(const std::string& path);
// From `file` when given, else from LOCUM_TOKEN, else from DIR/token when `dir` is given.
Result<std::string> FindToken(const std::string& file, const std::string& dir);
// As FindToken, but makes one when there is none, and leaves it in DIR/token, readable by the owner only.
Result<std::string> EnsureToken(const std::string& file, const std::string& dir);

// Where the shell would find it. The status code of the error is to be the exit status: kInvalid not found,
// kRefused not executable.
Result<std::string> FindProgram(const std::string& name);

struct CoordinatorFile {
  std::string address;
  int pid = 0;
  std::string job;
  std::string version;
};
Status WriteCoordinatorFile(const std::string& dir, const CoordinatorFile& file);
Result<CoordinatorFile> ReadCoordinatorFile(const std::string& dir);

}  // namespace locum
