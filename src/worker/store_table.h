// The key-value exchange of one generation, as held by rank 0's worker: keys, and who waits for them. No
// sockets here; clients are numbers. A value may be set again; who waits is answered once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace locum {

inline constexpr uint64_t kMaxStoreBytes = 256u << 20;  // keys and values
inline constexpr uint64_t kMaxStoreWaiting = 1u << 16;

class StoreTable {
 public:
  using Client = uint64_t;

  // Begins a newer generation: drops all keys and all who wait.
  void Begin(Generation generation);
  Generation generation() const { return generation_; }

  // The clients that waited for this key and now get `value`. kRefused at a limit.
  Result<std::vector<Client>> Set(const std::string& key, const std::string& value);
  // The value; or null, and the client waits. kRefused at a limit.
  Result<const std::string*> Get(const std::string& key, Client client);
  void Drop(Client client);

 private:
  Generation generation_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<Client>> waiting_;
  std::map<Client, std::string> waits_for_;
  uint64_t bytes_ = 0;
};

}  // namespace locum
