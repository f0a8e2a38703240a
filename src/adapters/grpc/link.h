// The agent's side of the stream (ports/coordinator_link.h). One thread connects and connects again, with pauses that
// grow from 20 ms to a second; messages are written and delivered from gRPC's threads, without polling.
#pragma once

#include <memory>
#include <string>

#include "ports/coordinator_link.h"

namespace locum {

struct LinkOptions {
  std::string address;  // host:port of the coordinator
  std::string token;
};

std::unique_ptr<CoordinatorLink> MakeGrpcLink(const LinkOptions& options);

}  // namespace locum
