#include "adapters/grpc/channel.h"

#include <cstdlib>

namespace locum {

void QuietGrpc() { ::setenv("GRPC_VERBOSITY", "NONE", 0); }

std::shared_ptr<::grpc::Channel> MakeChannel(const std::string& address) {
  ::grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no backoff inherited from an earlier attempt
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3000);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // a ping for every message, to size windows that small messages never fill
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a cluster's own port is never behind a web proxy
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  return ::grpc::CreateCustomChannel(address, ::grpc::InsecureChannelCredentials(), args);
}

namespace {

// gRPC tells a chain of errors; the last link is the reason.
std::string LastReason(const std::string& text) {
  size_t at = text.find("last error: ");
  size_t colon = at == std::string::npos ? at : text.rfind(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace

Status FromGrpc(const ::grpc::Status& status, const std::string& address) {
  const std::string& text = status.error_message();
  switch (status.error_code()) {
    case ::grpc::StatusCode::OK: return OkStatus();
    case ::grpc::StatusCode::UNAUTHENTICATED:
      return Refused("coordinator " + address +
                     " refuses this token; give the one in the coordinator's DIR/token by --token-file or LOCUM_TOKEN");
    case ::grpc::StatusCode::UNIMPLEMENTED:
      return Refused(address + " answers, but is not a Locum coordinator of this version (" + text + ")");
    case ::grpc::StatusCode::FAILED_PRECONDITION:
    case ::grpc::StatusCode::NOT_FOUND: return Refused(text);
    case ::grpc::StatusCode::INVALID_ARGUMENT: return Invalid(text);
    case ::grpc::StatusCode::DEADLINE_EXCEEDED: return Timeout("no answer from the coordinator at " + address);
    case ::grpc::StatusCode::UNAVAILABLE:
      return Unavailable("cannot reach the coordinator at " + address +
                         (text.empty() ? "" : " (" + LastReason(text) + ")"));
    default: return Unavailable("call to the coordinator at " + address + " failed: " + text);
  }
}

}  // namespace locum
