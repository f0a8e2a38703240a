// This worker's access to the store of its generation, over connections that are kept for the next request. Any
// thread; each request has a connection to itself.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/protocol.h"
#include "worker/puller.h"

namespace locum {

class StoreClient {
 public:
  explicit StoreClient(DataIdentity identity) : identity_(std::move(identity)) {}

  // kInterrupted: the generation is over. kUnavailable: the store's host does not answer. kTimeout.
  Status Set(const std::shared_ptr<RunInfo>& run, const std::string& key, const std::string& value);
  Result<std::string> Get(const std::shared_ptr<RunInfo>& run, const std::string& key, Duration timeout);

 private:
  Result<std::string> Ask(const std::shared_ptr<RunInfo>& run, StoreOperation operation, const std::string& key,
                          const std::string& value, Time deadline);
  Result<TcpSocket> Take(const std::shared_ptr<RunInfo>& run, Time deadline);
  void GiveBack(const std::shared_ptr<RunInfo>& run, TcpSocket socket);

  const DataIdentity identity_;
  std::mutex mu_;
  Generation generation_;  // of the idle connections
  std::vector<TcpSocket> idle_;
};

}  // namespace locum
