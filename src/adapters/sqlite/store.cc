#include "adapters/sqlite/store.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <set>
#include <utility>

#include "adapters/sqlite/directory.h"
#include "adapters/sqlite/statement.h"
#include "base/word.h"

namespace locum {
namespace {

constexpr int kApplicationId = 0x4c4f434d;  // "LOCM"
constexpr int kBusyMs = 2000;

constexpr const char* kSchema = R"(
  CREATE TABLE job (
    id INTEGER PRIMARY KEY CHECK (id = 1), job TEXT NOT NULL, nodes INTEGER NOT NULL, spares INTEGER NOT NULL,
    workers_per_node INTEGER NOT NULL, seed INTEGER NOT NULL, term INTEGER NOT NULL, cluster INTEGER NOT NULL,
    phase TEXT NOT NULL, generation INTEGER NOT NULL, recovery_step INTEGER NOT NULL, recovery_fixed INTEGER NOT NULL,
    exit_status INTEGER NOT NULL, reason TEXT NOT NULL, adopts INTEGER NOT NULL,
    worker_to_spare INTEGER NOT NULL);
  CREATE TABLE command (position INTEGER PRIMARY KEY, word BLOB NOT NULL);
  CREATE TABLE timeouts (name TEXT PRIMARY KEY, ns INTEGER NOT NULL);
  CREATE TABLE limits (id INTEGER PRIMARY KEY CHECK (id = 1), restarts INTEGER NOT NULL, recoveries INTEGER NOT NULL,
    window_ns INTEGER NOT NULL);
  CREATE TABLE ranks (rank INTEGER PRIMARY KEY, node TEXT NOT NULL, home TEXT NOT NULL, slot INTEGER NOT NULL,
    worker INTEGER NOT NULL);
  CREATE TABLE leaving (position INTEGER PRIMARY KEY, rank INTEGER NOT NULL, node TEXT NOT NULL, home TEXT NOT NULL,
    slot INTEGER NOT NULL, worker INTEGER NOT NULL);
  CREATE TABLE history (generation INTEGER PRIMARY KEY, step INTEGER NOT NULL);
  CREATE TABLE nodes (name TEXT PRIMARY KEY, state TEXT NOT NULL, role TEXT NOT NULL, keeper INTEGER NOT NULL,
    reason TEXT NOT NULL);
)";

// The names on disk; they stay when the program's own change.
constexpr std::array kPhases = {"gathering",  "running",   "stopping", "freezing",
                                "recovering", "finishing", "finished", "failed"};
constexpr std::array kNodeStates = {"joining",   "healthy",   "suspect",     "failed", "repairing",
                                    "verifying", "probation", "quarantined", "left"};
constexpr std::array kRoles = {"none", "active", "spare"};

template <class E, size_t N>
const char* NameOf(const std::array<const char*, N>& names, E value) {
  size_t i = static_cast<size_t>(value);
  LOCUM_CHECK(i < N);
  return names[i];
}

template <class E, size_t N>
bool FindName(const std::array<const char*, N>& names, const std::string& name, E* value) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) {
      *value = static_cast<E>(i);
      return true;
    }
  }
  return false;
}

struct TimeoutField {
  const char* name;
  Duration Timeouts::*field;
};
constexpr TimeoutField kTimeouts[] = {
    {"heartbeat", &Timeouts::heartbeat},
    {"silence", &Timeouts::silence},
    {"lost_stream_grace", &Timeouts::lost_stream_grace},
    {"culprit_grace", &Timeouts::culprit_grace},
    {"freeze", &Timeouts::freeze},
    {"collective", &Timeouts::collective},
    {"park", &Timeouts::park},
    {"join", &Timeouts::join},
    {"gather", &Timeouts::gather},
    {"hang", &Timeouts::hang},
    {"grace", &Timeouts::grace},
    {"finish", &Timeouts::finish},
    {"adopt", &Timeouts::adopt},
};

Result<std::unique_ptr<sqlite3, int (*)(sqlite3*)>> OpenFile(const std::string& path, int flags) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Refused(path + " is not a Locum store; choose another --dir");
  }
  sqlite3* db = nullptr;
  int rc = sqlite3_open_v2(path.c_str(), &db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> holder(db, sqlite3_close);
  if (rc != SQLITE_OK) {
    return Internal("cannot open " + path + ": " + (db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(rc)));
  }
  sqlite3_busy_timeout(db, kBusyMs);
  return holder;
}

}  // namespace

Store::~Store() { sqlite3_close(db_); }

Status Store::Error(const std::string& what) const {
  return Internal(path_ + ": " + what + ": " + sqlite3_errmsg(db_));
}

Status Store::Exec(const char* sql) {
  return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? OkStatus() : Error("cannot use the store");
}

// Says what this file is, and makes the tables of a new one.
Status Store::Check(bool may_create) {
  auto number = [&](const char* sql, int64_t* value) {
    Statement statement(db_, sql);
    if (!statement.Row()) return false;
    *value = statement.Int(0);
    return true;
  };
  int64_t application = 0, version = 0, tables = 0;
  if (!number("PRAGMA application_id", &application) || !number("PRAGMA user_version", &version) ||
      !number("SELECT count(*) FROM sqlite_master", &tables)) {
    int code = sqlite3_errcode(db_) & 0xff;
    if (code == SQLITE_NOTADB) return Refused(path_ + " is not a Locum store; choose another --dir");
    if (code == SQLITE_CORRUPT) return Corrupt(path_ + ": the store is damaged; choose another --dir");
    return Error("cannot read the store");
  }
  if (tables == 0 && application == 0 && version == 0) {
    if (!may_create) return Unavailable(path_ + " holds no job yet");
    LOCUM_RETURN_IF_ERROR(Exec("PRAGMA journal_mode=WAL"));
    LOCUM_RETURN_IF_ERROR(Exec("PRAGMA synchronous=FULL"));
    std::string sql = "BEGIN IMMEDIATE;" + std::string(kSchema) +
                      "PRAGMA application_id=" + std::to_string(kApplicationId) +
                      "; PRAGMA user_version=" + std::to_string(kStoreVersion) + "; COMMIT;";
    return Exec(sql.c_str());
  }
  if (application != kApplicationId) return Refused(path_ + " is not a Locum store; choose another --dir");
  if (version != kStoreVersion) {
    return Refused(path_ + " has store version " + std::to_string(version) + "; this locum (" + kVersion +
                   ") reads version " + std::to_string(kStoreVersion) +
                   ". Use the locum that made it, or another --dir");
  }
  return OkStatus();
}

Result<std::unique_ptr<Store>> Store::Open(const std::string& dir) {
  LOCUM_RETURN_IF_ERROR(CheckPathLength(dir));
  std::string path = dir + "/" + kStoreFile;
  auto db = OpenFile(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if (!db.ok()) return db.status();
  std::unique_ptr<Store> store(new Store(db->release(), path));
  LOCUM_RETURN_IF_ERROR(store->Check(true));
  LOCUM_RETURN_IF_ERROR(store->Exec("PRAGMA synchronous=FULL"));
  return store;
}

Result<std::unique_ptr<Store>> Store::OpenToRead(const std::string& dir) {
  LOCUM_RETURN_IF_ERROR(CheckPathLength(dir));
  std::string path = dir + "/" + kStoreFile;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Unavailable(dir + " holds no job (" + path + " does not exist)");
  // Reading what a killed coordinator left in the write-ahead log takes write access; without it the database file
  // alone is read.
  bool writable = ::access(path.c_str(), W_OK) == 0 && ::access(dir.c_str(), W_OK) == 0;
  auto db = OpenFile(path, writable ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY);
  if (!db.ok()) return db.status();
  std::unique_ptr<Store> store(new Store(db->release(), path));
  LOCUM_RETURN_IF_ERROR(store->Check(false));
  return store;
}

Status Store::Damaged(const std::string& what) const {
  return Corrupt(path_ + ": " + what + "; the store is damaged; choose another --dir");
}

// A query failed: for what the file holds, or for what the machine did.
Status Store::Unreadable(const std::string& what) const {
  const int code = sqlite3_errcode(db_) & 0xff;
  const bool damage = code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR;
  return damage ? Damaged(what + ": " + sqlite3_errmsg(db_)) : Error(what);
}

// False: there is no job yet.
Result<bool> Store::LoadJob(PersistentState* state) {
  Statement job(db_,
                "SELECT job, nodes, spares, workers_per_node, seed, term, cluster, phase, generation, recovery_step,"
                " recovery_fixed, exit_status, reason, adopts, worker_to_spare FROM job");
  if (!job.Row()) {
    if (!job.ok()) return Unreadable("cannot read the job");
    return false;
  }
  state->spec.job = job.Text(0);
  for (int column : {1, 2, 3}) {
    if (job.Int(column) < 0 || job.Int(column) > 1000000) {
      return Damaged("a count of nodes or workers is out of range");
    }
  }
  state->spec.nodes = static_cast<uint32_t>(job.Int(1));
  state->spec.spares = static_cast<uint32_t>(job.Int(2));
  state->spec.workers_per_node = static_cast<uint32_t>(job.Int(3));
  state->spec.seed = job.U64(4);
  state->term = Term(job.U64(5));
  state->cluster = Incarnation(job.U64(6));
  if (!FindName(kPhases, job.Text(7), &state->phase)) return Damaged("unknown job phase '" + job.Text(7) + "'");
  if (job.U64(8) > kMaxGeneration || job.U64(9) > kMaxStep) return Damaged("generation or step is out of range");
  state->generation = Generation(job.U64(8));
  state->recovery_step = locum::Step(job.U64(9));
  state->recovery_fixed = job.Int(10) != 0;
  state->exit_status = static_cast<int>(job.Int(11));
  state->reason = job.Text(12);
  state->adopts = Incarnation(job.U64(13));
  state->spec.worker_to_spare = job.Int(14) != 0;

  Statement command(db_, "SELECT word FROM command ORDER BY position");
  while (command.Row()) state->spec.command.push_back(command.Text(0));
  if (!command.ok()) return Unreadable("cannot read the command");
  return true;
}

Status Store::LoadLimits(JobSpec* spec) {
  std::set<std::string> missing;
  for (const TimeoutField& t : kTimeouts) missing.insert(t.name);
  Statement timeouts(db_, "SELECT name, ns FROM timeouts");
  while (timeouts.Row()) {
    for (const TimeoutField& t : kTimeouts) {
      if (timeouts.Text(0) != t.name) continue;
      spec->timeouts.*t.field = Duration(timeouts.Int(1));
      missing.erase(t.name);
    }
  }
  if (!timeouts.ok()) return Unreadable("cannot read the time-outs");
  if (!missing.empty()) return Damaged("the time-out '" + *missing.begin() + "' is missing");
  Statement limits(db_, "SELECT restarts, recoveries, window_ns FROM limits");
  if (!limits.Row()) return limits.ok() ? Damaged("the limits are missing") : Unreadable("cannot read the limits");
  for (int column : {0, 1}) {
    if (limits.Int(column) < 0 || limits.Int(column) > UINT32_MAX) return Damaged("a limit is out of range");
  }
  spec->limits = {static_cast<uint32_t>(limits.Int(0)), static_cast<uint32_t>(limits.Int(1)), Duration(limits.Int(2))};
  return OkStatus();
}

Status Store::LoadPlacements(PersistentState* state) {
  bool in_range = true;
  Status failed;
  const auto placements = [&](const char* query, std::vector<Placement>* out) {
    Statement rows(db_, query);
    while (rows.Row()) {
      in_range &= rows.Int(0) >= 0 && rows.Int(0) < UINT32_MAX && rows.Int(3) >= 0 && rows.Int(3) <= 1000000;
      out->push_back({Rank(static_cast<uint32_t>(rows.Int(0))), rows.Text(1), rows.Text(2),
                      Slot(static_cast<uint32_t>(rows.Int(3))), Incarnation(rows.U64(4))});
    }
    if (!rows.ok() && failed.ok()) failed = Unreadable("cannot read the placement");
  };
  placements("SELECT rank, node, home, slot, worker FROM ranks ORDER BY rank", &state->ranks);
  placements("SELECT rank, node, home, slot, worker FROM leaving ORDER BY position", &state->leaving);
  Statement history(db_, "SELECT generation, step FROM history ORDER BY generation");
  while (history.Row()) {
    in_range &= history.U64(0) <= kMaxGeneration && history.U64(1) <= kMaxStep;
    state->history.push_back({Generation(history.U64(0)), Step(history.U64(1))});
  }
  if (!history.ok() && failed.ok()) failed = Unreadable("cannot read the placement");
  LOCUM_RETURN_IF_ERROR(failed);
  if (!in_range) return Damaged("a rank, slot, generation or step is out of range");
  return OkStatus();
}

Status Store::LoadNodes(std::vector<PersistentNode>* out) {
  Statement nodes(db_, "SELECT name, state, role, keeper, reason FROM nodes ORDER BY name");
  while (nodes.Row()) {
    PersistentNode& node = out->emplace_back();
    node.name = nodes.Text(0);
    if (!FindName(kNodeStates, nodes.Text(1), &node.state)) {
      return Damaged("unknown node state '" + nodes.Text(1) + "'");
    }
    if (!FindName(kRoles, nodes.Text(2), &node.role)) return Damaged("unknown role '" + nodes.Text(2) + "'");
    node.keeper = Incarnation(nodes.U64(3));
    node.reason = nodes.Text(4);
  }
  return nodes.ok() ? OkStatus() : Unreadable("cannot read the nodes");
}

Result<std::optional<PersistentState>> Store::Load() {
  LOCUM_RETURN_IF_ERROR(Exec("BEGIN"));
  struct End {
    sqlite3* db;
    ~End() { sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr); }
  } end{db_};
  PersistentState state;
  const auto there = LoadJob(&state);
  if (!there.ok()) return there.status();
  if (!*there) return std::optional<PersistentState>();
  LOCUM_RETURN_IF_ERROR(LoadLimits(&state.spec));
  LOCUM_RETURN_IF_ERROR(LoadPlacements(&state));
  LOCUM_RETURN_IF_ERROR(LoadNodes(&state.nodes));
  if (Status sense = CheckStored(state); !sense.ok()) return Damaged(sense.message());
  return std::optional<PersistentState>(std::move(state));
}

// A file that was deleted, or put in the place of this one, would go on taking what the next coordinator never sees.
// Each Save writes the whole state, so a new file is as good as the old one.
Status Store::FollowFile() {
  int moved = 0;
  if (sqlite3_file_control(db_, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || moved == 0) return OkStatus();
  auto fresh = Open(path_.substr(0, path_.rfind('/')));
  if (!fresh.ok()) return fresh.status();
  std::swap(db_, (*fresh)->db_);
  return OkStatus();
}

Status Store::Save(const PersistentState& state) {
  LOCUM_RETURN_IF_ERROR(FollowFile());
  LOCUM_RETURN_IF_ERROR(Exec("BEGIN IMMEDIATE"));
  // Nothing more after the first error: SQLite may have ended the transaction with it, and what follows would stand alone.
  Status failed;
  auto run = [&](Statement& statement) {
    if (failed.ok() && !statement.Run()) failed = Error("cannot write the state");
  };
  for (const char* sql : {"DELETE FROM command", "DELETE FROM timeouts", "DELETE FROM ranks", "DELETE FROM leaving",
                          "DELETE FROM history", "DELETE FROM nodes"}) {
    Statement clear(db_, sql);
    run(clear);
  }
  {
    Statement job(db_, "INSERT OR REPLACE INTO job VALUES (1,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    job.BindText(state.spec.job).Bind(state.spec.nodes).Bind(state.spec.spares).Bind(state.spec.workers_per_node);
    job.BindU(state.spec.seed).BindU(state.term.value).BindU(state.cluster.value);
    job.BindText(NameOf(kPhases, state.phase)).BindU(state.generation.value).BindU(state.recovery_step.value);
    job.Bind(state.recovery_fixed ? 1 : 0).Bind(state.exit_status).BindText(state.reason).BindU(state.adopts.value);
    job.Bind(state.spec.worker_to_spare ? 1 : 0);
    run(job);
  }
  int64_t position = 0;
  for (const std::string& word : state.spec.command) {
    Statement s(db_, "INSERT INTO command VALUES (?,?)");
    run(s.Bind(position++).BindText(word));
  }
  for (const TimeoutField& t : kTimeouts) {
    Statement s(db_, "INSERT INTO timeouts VALUES (?,?)");
    run(s.BindText(t.name).Bind((state.spec.timeouts.*t.field).count()));
  }
  {
    Statement s(db_, "INSERT OR REPLACE INTO limits VALUES (1,?,?,?)");
    const Limits& limits = state.spec.limits;
    run(s.Bind(limits.restarts).Bind(limits.recoveries).Bind(limits.window.count()));
  }
  for (const Placement& p : state.ranks) {
    Statement s(db_, "INSERT INTO ranks VALUES (?,?,?,?,?)");
    run(s.Bind(p.rank.value).BindText(p.node).BindText(p.home).Bind(p.slot.value).BindU(p.worker.value));
  }
  position = 0;
  for (const Placement& p : state.leaving) {
    Statement s(db_, "INSERT INTO leaving VALUES (?,?,?,?,?,?)");
    run(s.Bind(position++)
            .Bind(p.rank.value)
            .BindText(p.node)
            .BindText(p.home)
            .Bind(p.slot.value)
            .BindU(p.worker.value));
  }
  for (const Recovered& r : state.history) {
    Statement s(db_, "INSERT INTO history VALUES (?,?)");
    run(s.BindU(r.generation.value).BindU(r.step.value));
  }
  for (const PersistentNode& n : state.nodes) {
    Statement s(db_, "INSERT INTO nodes VALUES (?,?,?,?,?)");
    run(s.BindText(n.name)
            .BindText(NameOf(kNodeStates, n.state))
            .BindText(NameOf(kRoles, n.role))
            .BindU(n.keeper.value)
            .BindText(n.reason));
  }
  Status status = failed.ok() ? Exec("COMMIT") : failed;
  if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

}  // namespace locum
