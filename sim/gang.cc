#include "sim/gang.h"

#include <algorithm>

namespace locum::sim {
namespace {

constexpr Duration kBreak = std::chrono::microseconds(500);
constexpr Duration kDone = std::chrono::microseconds(400);
constexpr Duration kConnected = std::chrono::milliseconds(10);

}  // namespace

void Gang::Enter(uint64_t round, const std::shared_ptr<GangMember>& member) {
  Round& here = rounds_[round];
  here.entered.push_back(member);
  if (HearsOfLeaving(*member)) return Tell(member, round, false, kBreak);
  TryComplete(round, &here);
}

// A closed connection is heard of by whoever it led to, unless the way is cut.
bool Gang::HearsOfLeaving(const GangMember& member) const {
  return std::any_of(left_.begin(), left_.end(), [&](const auto& gone) {
    return gone.first != &member && network_->Passes(gone.second, member.machine());
  });
}

void Gang::Leave(const GangMember* member, Machine machine, const std::string& why) {
  if (!left_.emplace(member, machine).second) return;
  if (why_.empty()) why_ = why;
  BreakWaiting();
}

void Gang::BreakWaiting() {
  for (auto& [number, round] : rounds_) {
    for (const auto& member : round.entered) {
      if (member->alive() && HearsOfLeaving(*member)) Tell(member, number, false, kBreak);
    }
  }
}

void Gang::TryComplete(uint64_t number, Round* round) {
  if (round->complete || round->entered.size() < world_ || !left_.empty()) return;
  for (const auto& a : round->entered) {
    if (!a->alive()) return;
    for (const auto& b : round->entered) {
      if (!network_->Reach(a->machine(), b->machine())) return;
    }
  }
  round->complete = true;
  for (const auto& member : round->entered) Tell(member, number, true, number == kConnect ? kConnected : kDone);
  // A rank that has not heard of its end yet may still be told that it broke; nobody enters it again.
  std::erase_if(rounds_, [&](const auto& r) { return r.second.complete && r.first != number; });
}

void Gang::Tell(const std::shared_ptr<GangMember>& member, uint64_t round, bool ok, Duration mean) {
  Stage* stage = network_->stage();
  stage->After(stage->Delay(mean),
               [gang = shared_from_this(), member, result = GangResult{generation_, round, ok, why_}] {
                 if (member->alive()) member->OnGang(result);
               });
}

void Gang::Look() {
  if (!left_.empty()) return BreakWaiting();
  std::vector<uint64_t> numbers;  // a round that completes takes older ones away
  for (const auto& [number, round] : rounds_) numbers.push_back(number);
  for (uint64_t number : numbers) {
    if (const auto round = rounds_.find(number); round != rounds_.end()) TryComplete(number, &round->second);
  }
}

std::shared_ptr<Gang> Gangs::Of(Generation generation, const std::vector<Peer>& peers) {
  std::vector<Incarnation> members;
  for (const Peer& peer : peers) members.push_back(peer.worker);
  std::weak_ptr<Gang>& known = gangs_[{generation, std::move(members)}];
  std::shared_ptr<Gang> gang = known.lock();
  if (!gang) known = gang = std::make_shared<Gang>(network_, generation, peers.size());
  std::erase_if(gangs_, [](const auto& entry) { return entry.second.expired(); });
  return gang;
}

void Gangs::Look() {
  for (const auto& [key, known] : gangs_) {
    if (const auto gang = known.lock()) gang->Look();
  }
}

}  // namespace locum::sim
