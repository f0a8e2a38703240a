// What a coordinator starts from, damaged: any value in any row of its store, any bytes as the file, any stored state
// in an input log. It is refused with the reason, or a coordinator is made from it that takes nodes and goes on.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "adapters/grpc/convert.h"
#include "adapters/sqlite/store.h"
#include "cli/replay.h"
#include "mutate.h"
#include "puppets.h"
#include "seeds.h"

using namespace locum;  // NOLINT

namespace {

PersistentState Running(JobPhase phase) {
  PersistentState s;
  s.spec.job = "j";
  s.spec.command = {"train"};
  s.spec.nodes = 2;
  s.spec.spares = 1;
  s.term = Term(3);
  s.cluster = Incarnation(77);
  s.phase = phase;
  s.generation = Generation(5);
  s.recovery_step = locum::Step(12);
  s.recovery_fixed = phase != JobPhase::kFreezing;
  s.nodes = {{"node-0", NodeState::kHealthy, Role::kActive, Incarnation(100), ""},
             {"node-1", NodeState::kHealthy, Role::kActive, Incarnation(101), ""},
             {"node-2", NodeState::kProbation, Role::kSpare, Incarnation(102), "repaired"}};
  s.ranks = {{Rank(0), "node-0", "node-0", Slot(0), Incarnation(1)},
             {Rank(1), "node-1", "node-1", Slot(0), Incarnation(2)}};
  s.leaving = {{Rank(1), "node-2", "node-1", Slot(0), Incarnation(3)}};
  s.history = {{Generation(1), locum::Step(0)}, {Generation(5), locum::Step(12)}};
  return s;
}

// A coordinator takes it up; its nodes come back, train for a while, and one of them is lost.
void TakeUp(const PersistentState& stored) {
  if (stored.phase >= JobPhase::kFinished || stored.spec.nodes * stored.spec.workers_per_node > 64) return;
  Coordinator core(stored.spec, stored.term.Next(), stored.cluster, stored);
  Time now{1'000'000'000};
  std::vector<fuzz::Puppet> nodes(3);
  const auto step = [&](const Event& event) {
    for (const Action& action : core.Step(event, now)) {
      if (const auto* persist = std::get_if<Persist>(&action)) LOCUM_CHECK(CheckStored(*persist->state).ok());
      if (const auto* order = std::get_if<SendOrder>(&action)) nodes[order->stream - 1].order = order->order;
      if (const auto* refused = std::get_if<RefuseNode>(&action)) nodes[refused->stream - 1].stream = 0;
    }
  };
  step(Tick{});
  for (uint32_t i = 0; i < 3; ++i) {
    NodeHello hello{"node-" + std::to_string(i), kProtocolVersion,     kVersion, "", Incarnation(), "::1",
                    Incarnation(100 + i),        Incarnation(200 + i), 1,        2,  stored.term};
    nodes[i].stream = i + 1;
    nodes[i].next = Incarnation(1000 * (i + 1));
    step(NodeConnected{i + 1, hello});
  }
  for (int round = 0; round < 12; ++round) {
    now = now + (round == 9 ? std::chrono::seconds(30) : std::chrono::milliseconds(200));
    step(Tick{});
    if (round == 6) step(NodeLost{1, "lost"}), nodes[0].stream = 0;
    for (fuzz::Puppet& node : nodes) {
      if (node.stream == 0) continue;
      const StreamId stream = node.stream;
      fuzz::Obey(&node);
      step(NodeReported{stream, node.report});
      for (const WorkerReport& w : node.report.workers) step(WorkerReady{stream, w.slot, w.worker, fuzz::PuppetInfo()});
    }
  }
  LOCUM_CHECK(FromWire(ToWire(core.View())).ok());
}

const std::string& Dir() {
  static const std::string& dir = *new std::string([] {
    const std::string path = "/dev/shm/locum-stored-fuzz-" + std::to_string(::getpid());
    ::mkdir(path.c_str(), 0700);
    return path;
  }());  // outlives what removes it at the end
  return dir;
}

std::string Path() { return Dir() + "/" + kStoreFile; }

void RemoveDir() {
  for (const char* tail : {"", "-wal", "-shm", "-journal"}) ::unlink((Path() + tail).c_str());
  ::rmdir(Dir().c_str());
}

// A whole store, as bytes.
const std::string& Whole() {
  static const std::string bytes = [] {
    ::atexit(RemoveDir);
    auto store = Store::Open(Dir());
    LOCUM_CHECK(store.ok() && (*store)->Save(Running(JobPhase::kRunning)).ok());
    store->reset();
    std::string text(1 << 20, '\0');
    const int fd = ::open(Path().c_str(), O_RDONLY);
    text.resize(static_cast<size_t>(::read(fd, text.data(), text.size())));
    ::close(fd);
    return text;
  }();
  return bytes;
}

void Write(const std::string& bytes) {
  for (const char* tail : {"-wal", "-shm", "-journal"}) ::unlink((Path() + tail).c_str());
  const int fd = ::open(Path().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  LOCUM_CHECK(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  ::close(fd);
}

void ReadStore() {
  auto store = Store::OpenToRead(Dir());
  if (!store.ok()) return;
  auto state = (*store)->Load();
  if (!state.ok()) LOCUM_CHECK(state.status().code() == Code::kCorrupt);
  if (state.ok() && *state) TakeUp(**state);
}

// A value of one row replaced, or a row taken away.
void ChangeRow(sqlite3* db, FuzzInput& in) {
  static constexpr const char* kColumns[][2] = {
      {"job", "nodes"},         {"job", "spares"},       {"job", "workers_per_node"}, {"job", "term"},
      {"job", "phase"},         {"job", "generation"},   {"job", "recovery_step"},    {"job", "recovery_fixed"},
      {"job", "exit_status"},   {"job", "reason"},       {"job", "adopts"},           {"job", "job"},
      {"command", "word"},      {"timeouts", "ns"},      {"timeouts", "name"},        {"limits", "restarts"},
      {"limits", "recoveries"}, {"limits", "window_ns"}, {"ranks", "rank"},           {"ranks", "node"},
      {"ranks", "home"},        {"ranks", "slot"},       {"ranks", "worker"},         {"leaving", "rank"},
      {"leaving", "node"},      {"leaving", "slot"},     {"leaving", "worker"},       {"history", "generation"},
      {"history", "step"},      {"nodes", "name"},       {"nodes", "state"},          {"nodes", "role"},
      {"nodes", "keeper"}};
  static constexpr const char* kWords[] = {"gathering", "running", "stopping", "freezing", "recovering",  "finishing",
                                           "finished",  "failed",  "joining",  "healthy",  "quarantined", "none",
                                           "active",    "spare",   "node-0",   "node-2",   "node-9",      ""};
  const auto& [table, column] = kColumns[in.Below(std::size(kColumns))];
  const std::string where = std::string(" WHERE rowid IN (SELECT rowid FROM ") + table +
                            " ORDER BY rowid LIMIT 1 OFFSET " + std::to_string(in.Byte() % 16) + ")";
  const uint8_t what = in.Byte();
  std::string sql = "UPDATE " + std::string(table) + " SET " + column + " = ?" + where;
  if (what % 8 == 0) sql = "DELETE FROM " + std::string(table) + where;
  sqlite3_stmt* statement = nullptr;
  sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr);
  if (what % 8 < 4) {
    sqlite3_bind_int64(statement, 1, static_cast<int64_t>(in.Number()));
  } else {
    const std::string text = what % 8 == 4 ? in.Bytes(64) : kWords[in.Below(std::size(kWords))];
    sqlite3_bind_text(statement, 1, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
  sqlite3_step(statement);
  sqlite3_finalize(statement);
}

void Rows(FuzzInput& in) {
  Write(Whole());
  sqlite3* db = nullptr;
  LOCUM_CHECK(sqlite3_open(Path().c_str(), &db) == SQLITE_OK);
  sqlite3_exec(db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN", nullptr, nullptr, nullptr);
  for (int n = 0; n < 16 && !in.done(); ++n) ChangeRow(db, in);
  sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  ReadStore();
}

void File(FuzzInput& in) {
  std::string bytes = Whole();
  for (int n = 0; n < 16 && !in.done(); ++n) bytes[in.Number() % bytes.size()] = static_cast<char>(in.Byte());
  if (in.Bool()) bytes.resize(in.Number() % bytes.size());
  Write(in.Byte() % 8 == 0 ? in.Rest() : bytes);
  ReadStore();
}

void Message(FuzzInput& in) {
  const PersistentState s = Running(static_cast<JobPhase>(in.Byte() % 8));
  wire::CoreStart start = ToWire(s.spec, s.term.Next(), s.cluster, &s);
  for (int n = 0; n < 8 && !in.done(); ++n) FuzzMutate(&start, in);
  auto begun = FromWire(start);
  if (begun.ok() && begun->stored) TakeUp(*begun->stored);
}

void InputLog(FuzzInput& in) {
  Replay replay;
  wire::InputRecord record;
  const PersistentState s = Running(JobPhase::kRunning);
  *record.mutable_start() = ToWire(s.spec, s.term.Next(), s.cluster, in.Bool() ? &s : nullptr);
  record.mutable_start()->set_version(kVersion);
  bool more = true;
  for (int n = 0; n < 16 && more; ++n) {
    for (int change = in.Byte() % 4; change > 0; --change) FuzzMutate(&record, in);
    more = replay.Take(record.SerializeAsString());
    replay.Take(in.Bytes(64));
    record.mutable_input()->set_now_ns(static_cast<int64_t>(in.Number()));
    more |= !in.done();
  }
}

}  // namespace

int FuzzMixtures() { return 2'000; }

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (int column = 0; column < 33; ++column) {
    for (const int what : {0, 1, 5}) {
      seeds.push_back(
          {'\0', static_cast<char>(column), '\0', static_cast<char>(what), static_cast<char>(what == 5 ? 3 : 200)});
    }
  }
  for (char phase = 0; phase < 8; ++phase) seeds.push_back({'\2', phase});
  seeds.push_back(std::string("\1\x40\xff\x10\x01", 5));
  seeds.push_back(std::string("\3\0\0\0\1\0\5", 7));
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(FuzzText(data, size));
  switch (in.Byte() % 4) {
    case 0: Rows(in); break;
    case 1: File(in); break;
    case 2: Message(in); break;
    case 3: InputLog(in); break;
  }
  return 0;
}
