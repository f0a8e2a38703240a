// Until the first generation: wait for N nodes whose workers are all ready, give the spares a little longer, then
// hand out the ranks by the nodes' names.
#include <algorithm>

#include "core/impl.h"

namespace locum {

namespace {

std::string LastLine(const std::string& text) {
  constexpr size_t kMost = 300;
  const size_t end = text.find_last_not_of("\n\r \t");
  if (end == std::string::npos) return "";
  const size_t before = text.find_last_of('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return end - begin < kMost ? text.substr(begin, end - begin + 1) : text.substr(begin, kMost) + "...";
}

std::string CommandLine(const std::vector<std::string>& words) {
  constexpr size_t kMost = 200;
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line.size() <= kMost ? line : line.substr(0, kMost) + "...";
}

}  // namespace

// Nothing has been trained, so nothing is lost by ending; and a command that fails at once fails everywhere.
void Coordinator::Impl::FailStart(const Node& node, const SlotInfo& slot) {
  const WorkerExit exit = slot.report->exit.value_or(WorkerExit{});
  std::string why = "the command '" + CommandLine(p_.spec.command) + "' ended on node " + node.name +
                    " before its first step: " + exit.what;
  if (slot.report->joined && !slot.Ready()) {
    why += "; it had joined, and never called locum_next_step";
  } else if (exit.status == 0 && exit.signal == 0) {
    why += "; does it call locum_join and locum_next_step?";
  }
  if (const std::string last = LastLine(exit.log_tail); !last.empty()) why += "; its last line: " + last;
  if (!slot.report->log.empty()) why += "; its output is in " + slot.report->log;
  Fail(std::max(1, ShellStatus(exit)), why);
}

void Coordinator::Impl::Gather() {
  if (p_.phase != JobPhase::kGathering || Adopting()) return;
  // One that is not welcomed ends its stream and comes again; so it counts until it has stayed away for a while.
  std::string strangers;
  for (const auto& [name, node] : nodes_) {
    if (!node.stranger) continue;
    const Time forgotten = node.lost_at + T().adopt;
    if (!node.connected && now_ >= forgotten) continue;
    if (!node.connected) Want(forgotten);
    strangers += (strangers.empty() ? "" : ", ") + name;
  }
  if (!strangers.empty()) {
    waiting_for_ = "an operator: nodes that train for another coordinator are connected (" + strangers +
                   "); `locum adopt` takes them over, ending their agents lets a new job begin";
    return;
  }
  std::vector<Node*> ready;
  for (auto& [name, node] : nodes_) {
    if (NodeReady(node)) ready.push_back(&node);
    for (auto& [slot, info] : node.slots) {
      if (!info.refuse.empty()) return Fail(1, info.refuse);
      // What has trained, or ended before this coordinator's time, was not started by it: the database before is lost.
      const bool old = info.Exited() && (info.report->state.word.generation != Generation(0) ||
                                         (!info.seen_alive && !node.hello.job.empty()));
      if (old) info.retire = info.worker;
      if (info.Exited() && info.worker != info.retire) {
        // A node that was told to stop by its operator ended its own worker: it simply leaves.
        if (info.report->exit && info.report->exit->stopped) continue;
        return FailStart(node, info);
      }
      if (!info.report || info.Ready() || !node.connected) continue;
      const Time late = info.started_at + T().join;
      if (now_ >= late) {
        return Fail(1,
                    "the worker on " + node.name + " slot " + std::to_string(slot.value) +
                        (info.report->joined ? " has joined and not called locum_next_step within "
                                             : " has not joined within ") +
                        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(T().join).count()) +
                        " s (timeouts.join): the command must call locum_join and locum_next_step; its output is in " +
                        info.report->log);
      }
      Want(late);
    }
  }
  std::sort(ready.begin(), ready.end(), [](const Node* a, const Node* b) { return NaturalLess(a->name, b->name); });
  const bool enough = ready.size() >= p_.spec.nodes;
  if (enough && !enough_ready_) ready_since_ = now_;
  enough_ready_ = enough;
  if (!enough) {
    waiting_for_ = "nodes: " + std::to_string(ready.size()) + " of " + std::to_string(p_.spec.nodes) + " are ready";
    return;
  }
  if (ready.size() < p_.spec.nodes + p_.spec.spares && now_ < ready_since_ + T().gather) {
    Want(ready_since_ + T().gather);
    return;
  }
  uint32_t next = 0;
  for (Node* node : ready) {
    SetState(*node, NodeState::kHealthy, "");
    if (next >= World()) {
      node->role = Role::kSpare;
      continue;
    }
    node->role = Role::kActive;
    for (const auto& [slot, info] : node->slots) {
      p_.ranks.push_back({Rank(next++), node->name, node->name, slot, info.worker});
    }
  }
  LOCUM_CHECK(p_.ranks.size() == World());
  Open({}, "all nodes are ready");
}

}  // namespace locum
