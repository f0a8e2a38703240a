// What is read from the files of DIR: the history, the status, where the coordinator is, the token, the notes of an
// agent. Any bytes give an answer or an error.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "adapters/eventlog/event_log.h"
#include "adapters/eventlog/input_log.h"
#include "cli/event_text.h"
#include "cli/files.h"
#include "cli/rank_output.h"
#include "cli/status_json.h"
#include "runtime/notes_codec.h"
#include "seeds.h"

using namespace locum;  // NOLINT

namespace {

const std::string& Dir() {
  static const std::string& dir = *new std::string([] {
    const std::string path = "/dev/shm/locum-files-fuzz-" + std::to_string(::getpid());
    ::mkdir(path.c_str(), 0700);
    ::atexit([] {
      for (const char* file : {kCoordinatorFile, kTokenFile, "inputs-1.log"}) ::unlink((Dir() + "/" + file).c_str());
      ::rmdir(Dir().c_str());
    });
    return path;
  }());  // outlives what removes it at the end
  return dir;
}

void Put(const char* file, const std::string& text) {
  std::ofstream(Dir() + "/" + file, std::ios::binary | std::ios::trunc) << text;
}

void History(const std::string& text) {
  const auto end = ToldEnd(text);
  EventTeller teller;
  for (size_t begin = 0; begin < text.size();) {
    const size_t stop = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, stop - begin);
    begin = stop + 1;
    const std::string shown = EventText(line);
    if (shown != line) LOCUM_CHECK(shown.find('\n') == std::string::npos);
    LOCUM_CHECK(teller.Text(line).size() <= std::max(line.size() + 64, 2 * shown.size() + 64));
  }
  LOCUM_CHECK(!end || text.find("job_f") != std::string::npos);
}

PersistentState Stored() {
  PersistentState stored;
  stored.spec.job = "j";
  stored.nodes = {{"node-0", NodeState::kHealthy, Role::kActive, Incarnation(1), ""}};
  stored.ranks = {{Rank(0), "node-0", "node-0", Slot(0), Incarnation(5)}};
  return stored;
}

void StatusFile(const std::string& text) {
  const Json last = Json::parse(text, nullptr, false);
  const Json status = StatusJson(Stored(), last);
  LOCUM_CHECK(!StatusTable(status, "/d").empty() && !DumpJson(status, 1).empty());
  RankOutput output([](std::string_view) {});
  output.FollowLast(last, "/d");
}

// What a coordinator writes of a job that ran.
std::string AStatus() {
  ClusterView view;
  view.job = "j";
  view.has_loss = true;
  view.loss = 1.5;
  view.nodes.push_back({"node-0", NodeState::kHealthy, Role::kActive, true, "::1", 1, 2, {}, "", {}});
  WorkerReport worker;
  worker.worker = Incarnation(5);
  worker.state.rank = Rank(0);
  view.nodes[0].workers.push_back(worker);
  view.ranks.push_back({Rank(0), "node-0", Slot(0), Incarnation(5), 6, locum::Step(7), "/l", "/s", 8});
  return DumpJson(StatusJson(view), 0);
}

std::string AHistory() {
  Note note;
  note.name = "state_migrated";
  note.node = "node-2";
  note.rank = Rank(1);
  note.generation = Generation(3);
  note.reason = "killed by SIGTERM";
  note.figures = {{"bytes", 5}, {"duration_ns", 7}, {"bytes_per_second", 9}, {"last_ns", 1}};
  note.details = {{"state", "failed"}, {"rank_0", "node-1"}};
  std::string text = FormatEvent(note, Term(2), Time{77}, 1796120100123456789);
  for (const char* name : {"coordinator_started", "job_failed", "worker_exited", "node_stream_lost", "job_finished"}) {
    note.name = name;
    if (note.name[0] == 'j') note.figures = {{"exit_status", 3}};
    text += FormatEvent(note, Term(2), Time{77}, 0);
  }
  return text;
}

}  // namespace

int FuzzMixtures() { return 5'000; }

std::vector<std::string> FuzzSeeds() {
  return {"h" + AHistory(),
          "h{\"name\":\"x\",\"time\":\"-2147483648-2147483648-01T1:2:3.4\",\"step\":18446744073709551615}",
          "s" + AStatus(),
          "s{\"job\":{\"id\":\"j\",\"state\":5},\"nodes\":[{}],\"ranks\":[{}]}",
          "s{\"ranks\":[{\"worker\":1,\"rank\":0,\"log\":7}],\"nodes\":[{\"workers\":[{\"worker\":1,\"rank\":0}]}]}",
          "c{\"address\":\"127.0.0.1:7\",\"pid\":5,\"job\":\"j\",\"version\":\"0.1.0\"}",
          "c{\"address\":\"127.0.0.1:7\",\"pid\":1e300,\"job\":\"j\",\"version\":\"0.1.0\"}",
          "tabc\n",
          "n" + EncodeNotes({Term(3), "j", Incarnation(9), {{Incarnation(5), 6, Rank(0)}}}),
          std::string("iLOCINPT1\3\0\0\0\1\2\3\4\5\6\7\10abc", 24)};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(FuzzText(data + 1, size - 1));
  switch (data[0]) {
    case 'h': History(text); break;
    case 's': StatusFile(text); break;
    case 'c': {
      Put(kCoordinatorFile, text);
      const auto file = ReadCoordinatorFile(Dir());
      LOCUM_CHECK(file.ok() || file.status().message().find(kCoordinatorFile) != std::string::npos);
      break;
    }
    case 't': {
      Put(kTokenFile, text);
      const auto token = ReadToken(Dir() + "/" + kTokenFile);
      LOCUM_CHECK(!token.ok() || !token->empty());
      break;
    }
    case 'n':
      if (const auto notes = DecodeNotes(text); notes.ok() && !text.empty()) LOCUM_CHECK(EncodeNotes(*notes) == text);
      break;
    case 'i': {
      Put("inputs-1.log", text);
      size_t bytes = 0;
      const Status read = ReadInputLog(Dir() + "/inputs-1.log", [&](std::string_view payload) {
        bytes += payload.size();
        return true;
      });
      LOCUM_CHECK(bytes <= text.size() && (read.ok() || !read.message().empty()));
      break;
    }
  }
  return 0;
}
