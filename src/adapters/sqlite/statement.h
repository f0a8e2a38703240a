// A prepared SQL statement. Binding and reading remember the first error; Step returns it.
#pragma once

#include <sqlite3.h>

#include <string>
#include <string_view>

namespace locum {

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) { rc_ = sqlite3_prepare_v2(db, sql, -1, &handle_, nullptr); }
  ~Statement() { sqlite3_finalize(handle_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(int64_t v) {
    Note(sqlite3_bind_int64(handle_, ++bound_, v));
    return *this;
  }
  Statement& BindU(uint64_t v) { return Bind(static_cast<int64_t>(v)); }
  Statement& BindText(std::string_view v) {
    Note(sqlite3_bind_text(handle_, ++bound_, v.data() == nullptr ? "" : v.data(), static_cast<int>(v.size()),
                           SQLITE_TRANSIENT));
    return *this;
  }
  // True when there is a row. After false, ok() tells an end from an error.
  bool Row() {
    if (rc_ != SQLITE_OK && rc_ != SQLITE_ROW) return false;
    rc_ = sqlite3_step(handle_);
    return rc_ == SQLITE_ROW;
  }
  bool Run() {
    Row();
    return ok();
  }
  bool ok() const { return rc_ == SQLITE_OK || rc_ == SQLITE_ROW || rc_ == SQLITE_DONE; }

  int64_t Int(int column) const { return sqlite3_column_int64(handle_, column); }
  uint64_t U64(int column) const { return static_cast<uint64_t>(Int(column)); }
  std::string Text(int column) const {
    const void* data = sqlite3_column_blob(handle_, column);
    size_t size = static_cast<size_t>(sqlite3_column_bytes(handle_, column));
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
  }

 private:
  void Note(int rc) {
    if (rc_ == SQLITE_OK) rc_ = rc;
  }
  sqlite3_stmt* handle_ = nullptr;
  int rc_ = SQLITE_OK;
  int bound_ = 0;
};

}  // namespace locum
