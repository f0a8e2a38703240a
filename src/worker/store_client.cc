#include "worker/store_client.h"

namespace locum {
namespace {

constexpr Duration kAnswer = std::chrono::seconds(10);
constexpr size_t kMaxIdle = 16;

}  // namespace

Result<TcpSocket> StoreClient::Take(const std::shared_ptr<RunInfo>& run, Time deadline) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (generation_ != run->generation) {
      if (generation_ < run->generation) {
        idle_.clear();
        generation_ = run->generation;
      }
    } else if (!idle_.empty()) {
      TcpSocket socket = std::move(idle_.back());
      idle_.pop_back();
      return socket;
    }
  }
  DataRequest request;
  request.kind = DataKind::kStore;
  request.generation = run->generation;
  return OpenData(run->store_host, request, identity_, deadline, &run->over);
}

void StoreClient::GiveBack(const std::shared_ptr<RunInfo>& run, TcpSocket socket) {
  std::lock_guard<std::mutex> lock(mu_);
  if (generation_ == run->generation && idle_.size() < kMaxIdle) idle_.push_back(std::move(socket));
}

Result<std::string> StoreClient::Ask(const std::shared_ptr<RunInfo>& run, StoreOperation operation,
                                     const std::string& key, const std::string& value, Time deadline) {
  if (key.empty() || key.size() > kMaxStoreKey || value.size() > kMaxStoreValue) {
    return Invalid("a store key has 1 to " + std::to_string(kMaxStoreKey) + " bytes and a value at most " +
                   std::to_string(kMaxStoreValue));
  }
  Result<TcpSocket> socket = Take(run, TcpNow() + kAnswer);
  if (!socket.ok()) return socket.status();
  std::string request = EncodeStoreRequest(
      {operation, static_cast<uint32_t>(key.size()), static_cast<uint32_t>(value.size())});
  request += key;
  LOCUM_RETURN_IF_ERROR(socket->Send(request.data(), request.size(), value.data(), value.size(), false,
                                     TcpNow() + kAnswer, &run->over));
  LOCUM_RETURN_IF_ERROR(socket->WaitReadable(deadline, &run->over));
  char head[kStoreReplyBytes];
  LOCUM_RETURN_IF_ERROR(socket->Receive(head, sizeof head, TcpNow() + kAnswer, &run->over));
  Result<StoreReply> reply = DecodeStoreReply({head, sizeof head});
  if (!reply.ok()) return reply.status();
  std::string answer(reply->value_bytes, '\0');
  LOCUM_RETURN_IF_ERROR(socket->Receive(answer.data(), answer.size(), TcpNow() + kAnswer, &run->over));
  if (reply->code == StoreCode::kOver) return Interrupted("the generation is over");
  GiveBack(run, std::move(*socket));
  if (reply->code == StoreCode::kRefused) return Invalid(answer);
  return answer;
}

Status StoreClient::Set(const std::shared_ptr<RunInfo>& run, const std::string& key, const std::string& value) {
  return Ask(run, StoreOperation::kSet, key, value, TcpNow() + kAnswer).status();
}

Result<std::string> StoreClient::Get(const std::shared_ptr<RunInfo>& run, const std::string& key, Duration timeout) {
  Result<std::string> value = Ask(run, StoreOperation::kGet, key, "", TcpNow() + timeout);
  if (value.status().code() == Code::kTimeout) {
    return Timeout("no rank has set '" + key.substr(0, 128) + "' in the store within " +
                   std::to_string(timeout.count() / 1'000'000) + " ms");
  }
  return value;
}

}  // namespace locum
