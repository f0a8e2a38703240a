#include "worker/store_table.h"

#include <algorithm>

namespace locum {

void StoreTable::Begin(Generation generation) {
  generation_ = generation;
  values_.clear();
  waiting_.clear();
  waits_for_.clear();
  bytes_ = 0;
}

Result<std::vector<StoreTable::Client>> StoreTable::Set(const std::string& key, const std::string& value) {
  const auto old = values_.find(key);
  const uint64_t freed = old == values_.end() ? 0 : key.size() + old->second.size();
  if (bytes_ - freed + key.size() + value.size() > kMaxStoreBytes) {
    return Refused("the store would hold more than " + std::to_string(kMaxStoreBytes) + " bytes");
  }
  bytes_ += key.size() + value.size() - freed;
  values_[key] = value;
  std::vector<Client> clients;
  if (const auto waiting = waiting_.find(key); waiting != waiting_.end()) {
    clients = std::move(waiting->second);
    waiting_.erase(waiting);
    for (const Client client : clients) waits_for_.erase(client);
  }
  return clients;
}

Result<const std::string*> StoreTable::Get(const std::string& key, Client client) {
  if (const auto found = values_.find(key); found != values_.end()) return &found->second;
  if (waits_for_.size() >= kMaxStoreWaiting) {
    return Refused("more than " + std::to_string(kMaxStoreWaiting) + " wait at the store");
  }
  waiting_[key].push_back(client);
  waits_for_[client] = key;
  return static_cast<const std::string*>(nullptr);
}

void StoreTable::Drop(Client client) {
  const auto wait = waits_for_.find(client);
  if (wait == waits_for_.end()) return;
  const auto waiting = waiting_.find(wait->second);
  std::erase(waiting->second, client);
  if (waiting->second.empty()) waiting_.erase(waiting);
  waits_for_.erase(wait);
}

}  // namespace locum
