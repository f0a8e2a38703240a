// DIR/store.db: what a coordinator starts from. One transaction per change, on disk (synchronous=FULL) when Save
// returns; a crash between two leaves the earlier state whole.
//
// The schema has a version; a store of another version, or a file that is no store, is refused, never changed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "core/coordinator.h"

struct sqlite3;

namespace locum {

inline constexpr const char* kStoreFile = "store.db";
inline constexpr int kStoreVersion = 2;

class Store {
 public:
  // Makes the store when it is absent. The caller holds the directory's lock.
  static Result<std::unique_ptr<Store>> Open(const std::string& dir);
  // For looking only, beside a coordinator or after it. kUnavailable when there is none.
  static Result<std::unique_ptr<Store>> OpenToRead(const std::string& dir);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // None when no state was ever saved; kCorrupt when what is there cannot be.
  Result<std::optional<PersistentState>> Load();
  Status Save(const PersistentState& state);

 private:
  Store(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  Status Check(bool may_create);
  Status FollowFile();
  Result<bool> LoadJob(PersistentState* state);
  Status LoadLimits(JobSpec* spec);
  Status LoadPlacements(PersistentState* state);
  Status LoadNodes(std::vector<PersistentNode>* nodes);
  Status Exec(const char* sql);
  Status Error(const std::string& what) const;
  Status Damaged(const std::string& what) const;
  Status Unreadable(const std::string& what) const;
  sqlite3* db_;
  std::string path_;
};

}  // namespace locum
