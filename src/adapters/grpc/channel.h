// How both sides set up a connection, and the token that every call carries.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/token.h"

namespace locum {

inline constexpr const char* kTokenMetadata = "locum-token";
inline constexpr int kMaxMessageBytes = 32 << 20;  // a Ready of kMaxShards shards, and room

// Sets what gRPC reads from the environment: it prints nothing by itself unless the user asked for it. Call it before
// the first use of gRPC, while there is one thread.
void QuietGrpc();

// A channel with no state shared with any other, which gives up connecting after a second.
std::shared_ptr<::grpc::Channel> MakeChannel(const std::string& address);

// What went wrong with a call to `address`, for people.
Status FromGrpc(const ::grpc::Status& status, const std::string& address);

}  // namespace locum
