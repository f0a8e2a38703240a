// A worker's data port between clients that say anything, over real connections: requests whole, damaged and cut,
// what the store's clients say and when they leave, generations that end meanwhile. Each time a client that behaves
// is served afterwards.
#include <sys/socket.h>

#include <atomic>

#include "adapters/tcp/tcp_socket.h"
#include "input.h"
#include "seeds.h"
#include "state/transfer.h"
#include "worker/data_port.h"

using namespace locum;  // NOLINT

namespace {

constexpr Duration kPatience = std::chrono::seconds(8);  // longer than any wait of the port
constexpr int kClients = 3;

struct Port {
  std::atomic<uint64_t> generation{1};
  DataPort port{{"token", "job"},
                Incarnation(3),
                [this] { return Generation(generation); },
                [](TcpSocket, const DataRequest&) { return true; }};
  Port() { LOCUM_CHECK(port.Listen("127.0.0.1").ok() && port.Start().ok()); }
};

Port& ThePort() {
  static Port port;
  return port;
}

Peer Address() { return {Rank(0), Incarnation(3), ThePort().port.address()}; }

DataRequest StoreRequestNow() {
  DataRequest request;
  request.kind = DataKind::kStore;
  request.token = "token";
  request.job = "job";
  request.target = Incarnation(3);
  request.generation = Generation(ThePort().generation);
  return request;
}

std::string Frame(FuzzInput& in, bool honest) {
  const StoreOperation operation = in.Bool() ? StoreOperation::kSet : StoreOperation::kGet;
  const std::string key = "k" + std::to_string(in.Byte() % 4);
  const std::string value = operation == StoreOperation::kSet ? in.Bytes(64) : "";
  StoreRequest head{operation, static_cast<uint32_t>(key.size()), static_cast<uint32_t>(value.size())};
  if (!honest) (in.Bool() ? head.key_bytes : head.value_bytes) = static_cast<uint32_t>(in.Number());
  return EncodeStoreRequest(head) + key + value;
}

class Client {
 public:
  void Open() {
    auto socket = TcpSocket::Connect(*ParseAddress(Address().address), TcpNow() + kPatience, nullptr);
    LOCUM_CHECK(socket.ok());
    socket_ = std::move(*socket);
    // Not a port for each that stays in use for a minute.
    const linger at_once{1, 0};
    ::setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  void Send(const std::string& bytes) {
    if (!socket_.valid()) Open();
    [[maybe_unused]] const ssize_t sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void Close() { socket_.Close(); }
  void Read() {
    char bytes[4096];
    if (socket_.valid()) [[maybe_unused]]
      const ssize_t n = ::recv(socket_.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
  }

 private:
  TcpSocket socket_;
};

void Deed(FuzzInput& in, Client* client) {
  switch (in.Byte() % 12) {
    default: return client->Send(Frame(in, true));
    case 0: return client->Send(EncodeRequest(StoreRequestNow()));
    case 1: return client->Send(in.Bytes(64));
    case 2: {
      std::string request = EncodeRequest(StoreRequestNow());
      request[in.Byte() % request.size()] = static_cast<char>(in.Byte());
      return client->Send(request);
    }
    case 3: return client->Send(EncodeRequest(StoreRequestNow()).substr(0, in.Byte()));
    case 4: return client->Close();
    case 5: return client->Read();
    case 6: return client->Send(Frame(in, false));
    case 7: ++ThePort().generation; return ThePort().port.Poke();
    case 8: {
      DataRequest pull = StoreRequestNow();
      pull.kind = in.Bool() ? DataKind::kPull : DataKind::kEcho;
      pull.chunk_count = in.Byte();
      return client->Send(EncodeRequest(pull));
    }
  }
}

// Sets a key and gets it.
void Behave() {
  const Time deadline = TcpNow() + kPatience;
  auto socket = OpenData(Address(), StoreRequestNow(), {"token", "job"}, deadline, nullptr);
  LOCUM_CHECK(socket.ok());
  for (const StoreOperation operation : {StoreOperation::kSet, StoreOperation::kGet}) {
    const std::string value = operation == StoreOperation::kSet ? "value" : "";
    LOCUM_CHECK(socket
                    ->Send(EncodeStoreRequest({operation, 3, static_cast<uint32_t>(value.size())}) + "key" + value,
                           deadline, nullptr)
                    .ok());
    std::string head(kStoreReplyBytes, '\0');
    LOCUM_CHECK(socket->Receive(head.data(), head.size(), deadline, nullptr).ok());
    const auto reply = DecodeStoreReply(head);
    LOCUM_CHECK(reply.ok() && reply->code == StoreCode::kOk);
    std::string answer(reply->value_bytes, '\0');
    LOCUM_CHECK(socket->Receive(answer.data(), answer.size(), deadline, nullptr).ok());
    LOCUM_CHECK(answer == (operation == StoreOperation::kSet ? "" : "value"));
  }
}

}  // namespace

int FuzzMixtures() { return 2'000; }

std::vector<std::string> FuzzSeeds() {
  return {std::string("\0\0\0\x0b\0\1\0\0\1\x0b\1\1\3\0abc\1\x04\0\5", 20),
          std::string("\0\0\1\0\0\x0b\0\1\1\7\1\x0b\0\1", 14), std::string("\2\1\4\1\6\1\1\xf0\2\x08\0\7\1\3\5", 15)};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(FuzzText(data, size));
  {
    Client clients[kClients];
    for (int n = 0; n < 32 && !in.done(); ++n) Deed(in, &clients[in.Byte() % kClients]);
  }
  Behave();
  return 0;
}
