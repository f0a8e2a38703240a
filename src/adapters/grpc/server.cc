#include "adapters/grpc/server.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "adapters/grpc/channel.h"
#include "locum.grpc.pb.h"

namespace locum {
namespace {

// Of connections that have not shown a token yet, or do nothing: whoever opens many is let go of soon.
constexpr int kHandshakeMs = 5000;
constexpr int kIdleMs = 15000;  // without a call; a client that comes back connects again by itself
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr int kMaxCallsPerConnection = 100;
constexpr size_t kMaxEventsBytes = 1u << 20;  // of one Events answer

// A stream that is refused before it began.
class ClosedStream final : public ::grpc::ServerBidiReactor<wire::FromAgent, wire::ToAgent> {
 public:
  explicit ClosedStream(const ::grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// Whole lines of `path` from `offset` on.
::grpc::Status ReadLines(const std::string& path, uint64_t offset, wire::EventsReply* reply) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {::grpc::StatusCode::UNAVAILABLE, "the coordinator cannot open its event log"};
  std::string data(kMaxEventsBytes, '\0');
  ssize_t n = ::pread(fd, data.data(), data.size(), static_cast<off_t>(offset));
  ::close(fd);
  if (n < 0) return {::grpc::StatusCode::UNAVAILABLE, "the coordinator cannot read its event log"};
  data.resize(static_cast<size_t>(n));
  size_t end = data.rfind('\n');
  data.resize(end == std::string::npos ? 0 : end + 1);
  reply->set_next_offset(offset + data.size());
  reply->set_lines(std::move(data));
  return ::grpc::Status::OK;
}

}  // namespace

struct GrpcServer::Impl final : public wire::Control::CallbackService {
  Impl(const ServerOptions& o, ServerHandlers h) : options(o), handlers(std::move(h)) {}

  ::grpc::Status Admit(::grpc::CallbackServerContext* context) {
    const auto& metadata = context->client_metadata();
    auto token = metadata.find(kTokenMetadata);
    if (token == metadata.end() || !SameToken({token->second.data(), token->second.size()}, options.token)) {
      return {::grpc::StatusCode::UNAUTHENTICATED, "wrong token"};
    }
    std::lock_guard lock(mutex);
    if (closing) return {::grpc::StatusCode::UNAVAILABLE, "the coordinator is closing"};
    return ::grpc::Status::OK;
  }

  ::grpc::ServerBidiReactor<wire::FromAgent, wire::ToAgent>* Agent(::grpc::CallbackServerContext* context) override {
    ::grpc::Status admitted = Admit(context);
    if (!admitted.ok()) return new ClosedStream(admitted);
    std::shared_ptr<AgentStream> stream;
    {
      std::lock_guard lock(mutex);
      if (streams.size() >= kMaxStreams) {
        return new ClosedStream({::grpc::StatusCode::RESOURCE_EXHAUSTED, "too many agents"});
      }
      StreamId id = ++last_stream;
      stream = std::make_shared<AgentStream>(id, handlers.post, [this](StreamId gone) { Forget(gone); });
      streams.emplace(id, stream);
    }
    stream->Begin();
    return stream.get();
  }

  ::grpc::ServerUnaryReactor* Status(::grpc::CallbackServerContext* context, const wire::StatusRequest*,
                                     wire::StatusReply* reply) override {
    ::grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    ::grpc::Status admitted = Admit(context);
    if (!admitted.ok()) {
      reactor->Finish(admitted);
      return reactor;
    }
    bool accepted = handlers.view([reactor, reply](const ClusterView* view) {
      if (view == nullptr) {
        reactor->Finish({::grpc::StatusCode::UNAVAILABLE, "the coordinator is closing"});
        return;
      }
      *reply->mutable_view() = ToWire(*view);
      reactor->Finish(::grpc::Status::OK);
    });
    if (!accepted) reactor->Finish({::grpc::StatusCode::UNAVAILABLE, "the coordinator is busy or closing; try again"});
    return reactor;
  }

  ::grpc::ServerUnaryReactor* Events(::grpc::CallbackServerContext* context, const wire::EventsRequest* request,
                                     wire::EventsReply* reply) override {
    ::grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    ::grpc::Status status = Admit(context);
    if (status.ok() && request->offset() > static_cast<uint64_t>(INT64_MAX)) {
      status = {::grpc::StatusCode::INVALID_ARGUMENT, "offset: too large"};
    }
    if (status.ok()) status = ReadLines(options.events_path, request->offset(), reply);
    reactor->Finish(status);
    return reactor;
  }

  ::grpc::ServerUnaryReactor* Failback(::grpc::CallbackServerContext* context, const wire::FailbackRequest* request,
                                       wire::FailbackReply*) override {
    ::grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    ::grpc::Status status = Admit(context);
    if (status.ok() && !IsNodeName(request->node())) {
      status = {::grpc::StatusCode::INVALID_ARGUMENT, "'" + Clean(request->node(), kMaxName) + "' is not a node name"};
    }
    return Ask(reactor, status, [&](uint64_t id) { return FailbackRequested{id, request->node()}; });
  }

  ::grpc::ServerUnaryReactor* Adopt(::grpc::CallbackServerContext* context, const wire::AdoptRequest*,
                                    wire::AdoptReply*) override {
    return Ask(context->DefaultReactor(), Admit(context), [](uint64_t id) { return AdoptRequested{id}; });
  }

  // Puts an operator's request before the core, which answers by its number.
  ::grpc::ServerUnaryReactor* Ask(::grpc::ServerUnaryReactor* reactor, ::grpc::Status status,
                                  const std::function<Event(uint64_t)>& make) {
    uint64_t id = 0;
    if (status.ok()) {
      std::lock_guard lock(mutex);
      if (requests.size() >= kMaxRequests) {
        status = {::grpc::StatusCode::UNAVAILABLE, "too many requests wait; try again"};
      } else {
        id = ++last_request;
        requests.emplace(id, reactor);
      }
    }
    if (!status.ok()) {
      reactor->Finish(status);
    } else if (!handlers.post(make(id), [] {})) {
      FinishRequest(id, {::grpc::StatusCode::UNAVAILABLE, "the coordinator is closing"});
    }
    return reactor;
  }

  void FinishRequest(uint64_t id, const ::grpc::Status& status) {
    ::grpc::ServerUnaryReactor* reactor = nullptr;
    {
      std::lock_guard lock(mutex);
      auto it = requests.find(id);
      if (it == requests.end()) return;
      reactor = it->second;
      requests.erase(it);
    }
    reactor->Finish(status);
  }

  std::shared_ptr<AgentStream> Find(StreamId id) {
    std::lock_guard lock(mutex);
    auto it = streams.find(id);
    return it == streams.end() ? nullptr : it->second;
  }

  void Forget(StreamId id) {
    std::lock_guard lock(mutex);
    streams.erase(id);
    if (streams.empty()) empty.notify_all();
  }

  const ServerOptions options;
  const ServerHandlers handlers;
  std::unique_ptr<::grpc::Server> server;
  int port = 0;

  std::mutex mutex;
  std::condition_variable empty;
  bool closing = false;
  StreamId last_stream = 0;
  uint64_t last_request = 0;
  std::map<StreamId, std::shared_ptr<AgentStream>> streams;
  std::map<uint64_t, ::grpc::ServerUnaryReactor*> requests;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() { Shutdown(Duration(0)); }

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const ServerOptions& options, ServerHandlers handlers) {
  LOCUM_CHECK(!options.token.empty());
  auto impl = std::make_unique<Impl>(options, std::move(handlers));
  bool v6 = options.host.find(':') != std::string::npos;
  std::string address = (v6 ? "[" + options.host + "]" : options.host) + ":" + std::to_string(options.port);
  ::grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error, not shared
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddListeningPort(address, ::grpc::InsecureServerCredentials(), &impl->port);
  builder.RegisterService(impl.get());
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) {
    return Invalid("cannot listen on " + address +
                   ": the port is in use, or the address is not one of this machine; choose another with --listen, "
                   "--port or --interface");
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

uint16_t GrpcServer::port() const { return static_cast<uint16_t>(impl_->port); }

void GrpcServer::SendWelcome(StreamId stream, const Welcome& welcome) {
  if (auto s = impl_->Find(stream)) s->SendWelcome(welcome);
}

void GrpcServer::SendOrder(StreamId stream, const NodeOrder& order) {
  if (auto s = impl_->Find(stream)) s->SendOrder(order);
}

void GrpcServer::Refuse(StreamId stream, const std::string& reason, bool end) {
  if (auto s = impl_->Find(stream)) s->Refuse(reason, end);
}

void GrpcServer::Answer(uint64_t request, const Status& status) {
  auto code = status.ok()                           ? ::grpc::StatusCode::OK
              : status.code() == Code::kUnavailable ? ::grpc::StatusCode::UNAVAILABLE
                                                    : ::grpc::StatusCode::FAILED_PRECONDITION;
  impl_->FinishRequest(request, {code, Clean(status.message())});
}

void GrpcServer::Shutdown(Duration drain) {
  if (impl_->server == nullptr) return;
  std::vector<std::shared_ptr<AgentStream>> open;
  std::vector<uint64_t> waiting;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->closing = true;
    for (const auto& [id, stream] : impl_->streams) open.push_back(stream);
    for (const auto& [id, reactor] : impl_->requests) waiting.push_back(id);
  }
  for (uint64_t id : waiting) impl_->FinishRequest(id, {::grpc::StatusCode::UNAVAILABLE, "the coordinator is closing"});
  for (const auto& stream : open) stream->Close({::grpc::StatusCode::UNAVAILABLE, "the coordinator is closing"});
  open.clear();
  {
    std::unique_lock lock(impl_->mutex);
    impl_->empty.wait_for(lock, drain, [&] { return impl_->streams.empty(); });
  }
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace locum
