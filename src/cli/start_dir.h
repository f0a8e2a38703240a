// The directory a start is given: whether it may be used, and that a start which fails leaves nothing in it or of it
// that was not there before.
//
// Only what Locum itself makes is ever taken away, and only while the caller holds the directory's lock: what another
// process has made there meanwhile is not this one's.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace locum {

class StartDir {
 public:
  StartDir() = default;
  StartDir(const StartDir&) = delete;
  StartDir& operator=(const StartDir&) = delete;
  // Takes away what is new, unless it is to be kept.
  ~StartDir();

  // kInvalid when `path` (absolute) is "/", or holds what is not Locum's; `setting` is what the message calls it: "--dir".
  static Status Check(const std::string& path, const std::string& setting);
  // Makes `path` with its parents, when it may be used.
  Status Make(const std::string& path, const std::string& setting);
  // The lock is held: of the names that `ours` knows, those that were not there at Make are new. With a `lock_file`
  // those that come from now on, and that file.
  void Guard(bool (*ours)(const std::string& name), const std::string& lock_file = "");
  // What was made stays: the start has succeeded.
  void Keep();
  // Takes away what is new now.
  void Clear();

 private:
  std::string path_;
  std::vector<std::string> made_;  // directories, the outermost first
  std::set<std::string> before_;   // names in the directory
  bool (*ours_)(const std::string&) = nullptr;
};

// Whether the file of this name in a DIR is one that a coordinator makes; that `locum run` or its coordinator does;
// that an agent makes for itself.
bool IsCoordinatorFile(const std::string& name);
bool IsRunFile(const std::string& name);
bool IsAgentFile(const std::string& name);
// Whether a worker was ever started for the node whose directory this is.
bool HoldsWorkerFiles(const std::string& path);

}  // namespace locum
