#include "worker/group_connections.h"

#include <algorithm>

#include "adapters/tcp/address.h"

namespace locum {
namespace {

bool Holds(const std::vector<TcpConnection>& all, const TcpConnection& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::set<TcpEndpoint> Endpoints(const std::set<std::string>& addresses) {
  std::set<TcpEndpoint> endpoints;
  for (const std::string& text : addresses) {
    const Result<HostPort> parsed = ParseAddress(text);
    if (!parsed.ok()) continue;
    const Result<SocketAddress> address = ToSocketAddress(*parsed);
    if (!address.ok()) continue;
    if (const std::optional<TcpEndpoint> endpoint = EndpointOf(address->storage)) endpoints.insert(*endpoint);
  }
  return endpoints;
}

}  // namespace

void GroupConnections::Begin(Generation generation) {
  std::lock_guard<std::mutex> lock(mu_);
  generation_ = generation;
  group_.clear();
  Result<std::vector<TcpConnection>> now = TcpConnectionsOfThisProcess();
  // Without knowing what was there before nothing may be taken for new.
  phase_ = now.ok() ? Phase::kConnecting : Phase::kUnknown;
  before_ = now.ok() ? std::move(*now) : std::vector<TcpConnection>();
}

void GroupConnections::Connected() {
  std::lock_guard<std::mutex> lock(mu_);
  if (phase_ != Phase::kConnecting) return;
  group_ = New();
  before_.clear();
  phase_ = Phase::kConnected;
}

size_t GroupConnections::Break(Generation generation) {
  std::lock_guard<std::mutex> lock(mu_);
  if (generation != generation_ || phase_ == Phase::kUnknown) return 0;
  const std::vector<TcpConnection> group = phase_ == Phase::kConnecting ? New() : group_;
  if (group.empty()) return 0;
  const Result<size_t> count = ShutDownTcpConnections([&](const TcpConnection& c) { return Holds(group, c); });
  return count.ok() ? *count : 0;
}

std::vector<TcpConnection> GroupConnections::New() const {
  const Result<std::vector<TcpConnection>> now = TcpConnectionsOfThisProcess();
  if (!now.ok()) return {};
  // After the look: the library knows an address before it connects to it.
  const std::set<TcpEndpoint> own = Endpoints(own_());
  std::vector<TcpConnection> found;
  for (const TcpConnection& c : *now) {
    if (own.count(c.local) || own.count(c.peer) || Holds(before_, c)) continue;
    found.push_back(c);
  }
  return found;
}

}  // namespace locum
