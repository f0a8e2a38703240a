#include "adapters/grpc/client.h"

#include "adapters/grpc/channel.h"
#include "adapters/grpc/convert.h"
#include "locum.grpc.pb.h"

namespace locum {

struct GrpcClient::Impl {
  std::string address, token;
  std::shared_ptr<::grpc::Channel> channel;
  std::unique_ptr<wire::Control::Stub> stub;

  void Prepare(::grpc::ClientContext* context, Duration deadline) {
    context->AddMetadata(kTokenMetadata, token);
    context->set_deadline(std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(deadline));
  }
};

GrpcClient::GrpcClient(std::string address, std::string token) : impl_(std::make_unique<Impl>()) {
  impl_->channel = MakeChannel(address);
  impl_->stub = wire::Control::NewStub(impl_->channel);
  impl_->address = std::move(address);
  impl_->token = std::move(token);
}

GrpcClient::~GrpcClient() = default;

Result<ClusterView> GrpcClient::View(Duration deadline) {
  ::grpc::ClientContext context;
  impl_->Prepare(&context, deadline);
  wire::StatusReply reply;
  LOCUM_RETURN_IF_ERROR(FromGrpc(impl_->stub->Status(&context, {}, &reply), impl_->address));
  return FromWire(reply.view());
}

Result<GrpcClient::Lines> GrpcClient::Events(uint64_t offset, Duration deadline) {
  ::grpc::ClientContext context;
  impl_->Prepare(&context, deadline);
  wire::EventsRequest request;
  request.set_offset(offset);
  wire::EventsReply reply;
  LOCUM_RETURN_IF_ERROR(FromGrpc(impl_->stub->Events(&context, request, &reply), impl_->address));
  if (reply.next_offset() < offset) return Invalid("the coordinator answered with an offset before the one asked for");
  return Lines{reply.lines(), reply.next_offset()};
}

Status GrpcClient::Failback(const std::string& node, Duration deadline) {
  ::grpc::ClientContext context;
  impl_->Prepare(&context, deadline);
  wire::FailbackRequest request;
  request.set_node(node);
  wire::FailbackReply reply;
  return FromGrpc(impl_->stub->Failback(&context, request, &reply), impl_->address);
}

Status GrpcClient::Adopt(Duration deadline) {
  ::grpc::ClientContext context;
  impl_->Prepare(&context, deadline);
  wire::AdoptReply reply;
  return FromGrpc(impl_->stub->Adopt(&context, {}, &reply), impl_->address);
}

}  // namespace locum
