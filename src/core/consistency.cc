// Whether a worker may train beside the others: same protocol, same registered state, same fingerprint.
#include <algorithm>

#include "core/impl.h"

namespace locum {

namespace {

// The lines of two fingerprints that differ, for a person: "isa: x86-64-v4 / x86-64-v3".
std::string Difference(const std::string& a, const std::string& b) {
  const auto split = [](const std::string& text) {
    std::map<std::string, std::string> lines;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string line = text.substr(at, end - at);
      const size_t eq = std::min(line.find('='), line.size());
      lines[line.substr(0, eq)] = eq < line.size() ? line.substr(eq + 1) : "";
      at = end + 1;
    }
    return lines;
  };
  auto la = split(a), lb = split(b);
  std::string out;
  for (const auto& [key, value] : la) {
    const auto other = lb.find(key);
    if (other == lb.end() || other->second != value) {
      out += (out.empty() ? "" : ", ") + key + ": " + value + " / " + (other == lb.end() ? "absent" : other->second);
    }
  }
  for (const auto& [key, value] : lb) {
    if (!la.count(key)) out += (out.empty() ? "" : ", ") + key + ": absent / " + value;
  }
  return out;
}

std::string Describe(const Shard& s) {
  return "'" + s.name + "' of " + std::to_string(s.bytes) + " bytes in group " + s.group;
}

std::string Compare(const std::string& mine, const JoinInfo& a, const std::string& theirs, const JoinInfo& b) {
  const std::string both = mine + " and " + theirs;
  if (a.library != b.library) return both + " use different worker libraries: " + a.library + " / " + b.library;
  for (size_t i = 0; i < std::max(a.shards.size(), b.shards.size()); ++i) {
    const std::string sa = i < a.shards.size() ? Describe(a.shards[i]) : "nothing";
    const std::string sb = i < b.shards.size() ? Describe(b.shards[i]) : "nothing";
    if (sa != sb)
      return both + " register different state: shard " + std::to_string(i) + " is " + sa + " / " + sb +
             "; register the same names, sizes and order everywhere";
  }
  if (a.layout_hash != b.layout_hash)
    return both + " cut the same shards differently (layout hash): run the same build of the worker library";
  if (a.total_steps != b.total_steps) {
    return both + " were told different numbers of steps: " + std::to_string(a.total_steps) + " / " +
           std::to_string(b.total_steps);
  }
  if (a.fingerprint != b.fingerprint) {
    return both + " have different fingerprints, so equal bits cannot be promised: " +
           Difference(a.fingerprint, b.fingerprint);
  }
  return "";
}

}  // namespace

// Every worker is compared with one that counts: a rank's if there is one, else the first that is ready.
void Coordinator::Impl::CheckConsistency(Node& node, Slot slot) {
  SlotInfo& mine = node.slots[slot];
  LOCUM_CHECK(mine.info);
  if (mine.info->protocol != kProtocolVersion) {
    mine.refuse = Where(node.name, slot) + " has worker library " + mine.info->library + " with protocol " +
                  std::to_string(mine.info->protocol) + ", the node speaks " + std::to_string(kProtocolVersion);
  }
  const auto compare_with = [&](const std::string& name, Slot other, const JoinInfo& info) {
    mine.refuse = Compare(Where(node.name, slot), *mine.info, Where(name, other), info);
  };
  bool compared = false;
  for (const Placement& p : p_.ranks) {
    const JoinInfo* info = InfoOf(p);
    if (compared || !info || (p.node == node.name && p.slot == slot)) continue;
    compare_with(p.node, p.slot, *info);
    compared = true;
  }
  for (const auto& [name, other] : nodes_) {
    for (const auto& [s, info] : other.slots) {
      if (compared || (name == node.name && s == slot) || !info.Ready()) continue;
      compare_with(name, s, *info.info);
      compared = true;
    }
  }
  if (mine.refuse.empty()) return;
  Note& note = AddNote("worker_refused", node);
  note.worker = mine.worker;
  note.reason = mine.refuse;
}

}  // namespace locum
