// A node that the coordinator hears and its peers do not. All of them report, all wait in a collective, and nothing
// tells who is cut off: so an echo goes round, from a worker of each node that holds a rank, and of a spare, to the next.
// Who can neither send it on nor be sent it, while everyone else can, is failed. A round disturbs nobody; where it
// does not point at one node alone, it decides nothing.
#include <algorithm>

#include "core/impl.h"

namespace locum {

// True while the verdict on the links is not in; who is cut off is failed here.
bool Coordinator::Impl::TestLinks() {
  if (round_.empty() && (now_ < round_again_ || !BeginRound())) return false;
  const Time due = round_at_ + kRoundPatience;
  std::vector<const Echo*> answers;
  bool all = true;
  for (const Probe& probe : round_) {
    const Node& node = nodes_[probe.node];
    const auto slot = node.slots.find(probe.slot);
    const bool same = slot != node.slots.end() && slot->second.worker == probe.worker && slot->second.report;
    const Echo* echo = same ? &slot->second.report->state.echo : nullptr;
    const bool answered = echo && echo->nonce == probe.nonce;
    answers.push_back(answered ? echo : nullptr);
    all &= answered;
  }
  if (!all && now_ < due) {
    Want(due);
    return true;
  }
  std::vector<size_t> cut;
  std::string text;
  bool failed = false;
  for (size_t i = 0; i < round_.size(); ++i) {
    const Echo* own = answers[i];
    const Echo* towards = answers[(i + round_.size() - 1) % round_.size()];
    const std::string outcome = !own ? "no answer" : own->ok ? "ok" : own->error;
    failed |= own && !own->ok;
    text += (i == 0 ? "" : "; ") + round_[i].node + " to " + round_[(i + 1) % round_.size()].node + ": " + outcome;
    if (own && towards && !own->ok && !towards->ok) cut.push_back(i);
  }
  const std::string blamed = cut.size() == 1 ? round_[cut.front()].node : "";
  round_.clear();
  round_again_ = now_ + kRoundPause;
  links_ = failed && blamed.empty() ? text : "";
  // A long collective is nothing to tell.
  if (failed) AddNote("links_tested").reason = text;
  std::vector<Fault> faults;
  for (const Placement& p : p_.ranks) {
    if (p.node != blamed) continue;
    faults.push_back({p.node, p.rank, p.worker, "its peers do not reach it, nor does it reach them: " + text, true});
    unreachable_.insert(p.worker);
  }
  if (faults.empty()) return false;
  Open(faults, faults.front().reason);
  return true;
}

bool Coordinator::Impl::BeginRound() {
  std::vector<Probe> round;
  for (const Placement& p : p_.ranks) {
    const Node* node = NodeOf(p);
    if (!node || !Heard(*node) || !ReportOf(p) || !InfoOf(p)) return false;
    if (std::any_of(round.begin(), round.end(), [&](const Probe& probe) { return probe.node == p.node; })) continue;
    round.push_back({p.node, p.slot, p.worker, 0, {p.rank, p.worker, InfoOf(p)->data_address}});
  }
  for (const auto& [name, node] : nodes_) {
    if (!UsableSpare(node) || node.echo_nonce != 0) continue;
    const auto& [slot, info] = *node.slots.begin();
    round.push_back({name, slot, info.worker, 0, {kNoRank, info.worker, info.info->data_address}});
    break;
  }
  // Of two that do not reach each other nobody can say which one is cut off; but that is worth knowing.
  if (round.size() < 2) return false;
  for (Probe& probe : round) probe.nonce = ++last_nonce_;
  round_ = std::move(round);
  round_at_ = now_;
  return true;
}

// The echo that this worker owes the round.
void Coordinator::Impl::AddProbe(WorkerOrder* order) const {
  for (size_t i = 0; i < round_.size(); ++i) {
    if (round_[i].worker != order->worker) continue;
    order->echo_nonce = round_[i].nonce;
    order->echo_peer = round_[(i + 1) % round_.size()].self;
  }
}

void Coordinator::Impl::DetectLinks() {
  const bool stands = p_.phase == JobPhase::kRunning && StandsStill(kLinkPatience);
  if (!stands) links_.clear();
  if (p_.phase != JobPhase::kRunning) return round_.clear();
  if (!stands && round_.empty()) return;
  TestLinks();
  if (!links_.empty()) waiting_for_ = "nodes to reach each other: " + links_;
}

}  // namespace locum
