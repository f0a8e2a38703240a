// What a local run shows: events as they are written, one line of progress, rank 0's output, and what a part said that
// has ended.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "adapters/eventlog/event_log.h"
#include "cli/event_text.h"
#include "cli/files.h"
#include "cli/local_run.h"
#include "cli/status_json.h"

namespace locum {
namespace {

constexpr size_t kTailBytes = 2000;

}  // namespace

void LocalRun::Show() {
  ShowEvents();
  if (poll_ != nullptr) {
    if (auto view = poll_->Take()) ShowView(*view);
  }
  output_.Pump();
}

void LocalRun::ShowEvents() {
  int fd = ::open((dir_ + "/" + kEventsFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  std::string text(256u << 10, '\0');
  ssize_t n = ::pread(fd, text.data(), text.size(), static_cast<off_t>(events_at_));
  ::close(fd);
  size_t end = n <= 0 ? std::string::npos : text.rfind('\n', static_cast<size_t>(n) - 1);
  if (end == std::string::npos) return;
  text.resize(end + 1);
  events_at_ += text.size();
  for (size_t begin = 0; begin < text.size();) {
    size_t stop = text.find('\n', begin);
    std::string line = text.substr(begin, stop - begin);
    begin = stop + 1;
    if (auto told = ToldEnd(line)) told_end_ = told;
    if (std::string shown = teller_.Text(line); !shown.empty()) display_.Event(shown);
  }
  if (poll_ != nullptr) poll_->Hurry();
}

void LocalRun::ShowView(const ClusterView& view) {
  output_.Follow(view);
  if (phase_ != Phase::kUp) return;
  // The history, where alarms are told otherwise, lies on the same disk.
  std::string trouble;
  for (const AlarmView& alarm : view.alarms) {
    if (alarm.name == "store") trouble = alarm.text;
  }
  if (trouble != store_alarm_ && !trouble.empty()) display_.Message("alarm store: " + trouble);
  store_alarm_ = trouble;
  auto healthy = std::count_if(view.nodes.begin(), view.nodes.end(),
                               [](const NodeView& n) { return n.state == NodeState::kHealthy; });
  std::string text = "step " + std::to_string(view.step.value);
  if (view.has_loss) {
    char loss[32];
    std::snprintf(loss, sizeof loss, "  loss %.4f", view.loss);
    text += loss;
  }
  text += "  generation " + std::to_string(view.generation.value) + "  nodes " + std::to_string(healthy) + "/" +
          std::to_string(nodes_.size()) + "  spares " + std::to_string(view.spares);
  if (view.phase != JobPhase::kRunning) text += std::string("  ") + JobPhaseName(view.phase);
  if (!view.waiting_for.empty()) text += ": waiting for " + view.waiting_for;
  display_.Progress(text);
}

// What rank 0 wrote after the last view was fetched, up to its end.
void LocalRun::ShowEnd() {
  poll_.reset();
  ShowEvents();
  auto text = ReadFile(dir_ + "/" + kStatusFile, 64u << 20);
  Json last = text.ok() ? Json::parse(*text, nullptr, false) : Json();
  output_.FollowLast(last, dir_);
  output_.Pump();
  display_.Clear();
}

void LocalRun::Tail(const std::string& path, const std::string& what) {
  auto text = ReadFile(path, 64u << 20);
  std::string tail = text.ok() ? *text : "";
  if (tail.size() > kTailBytes) tail = tail.substr(tail.find('\n', tail.size() - kTailBytes) + 1);
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  display_.Message(what + (tail.empty() ? "" : "; it said:"));
  if (!tail.empty()) display_.Event(tail);
}

}  // namespace locum
