// The decoders of the messages between agent and keeper: no input may crash them, and what one accepts must come back
// the same from its encoder.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "ports/keeper_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace locum;
  std::string_view packet(reinterpret_cast<const char*>(data), size);
  Result<KeeperMessage> type = KeeperTypeOf(packet);
  if (!type.ok()) return 0;
  auto check = [&](const auto& decoded, auto encode) {
    if (decoded.ok()) LOCUM_CHECK(encode(*decoded) == packet);
  };
  switch (*type) {
    case KeeperMessage::kStart: check(DecodeStart(packet), EncodeStart); break;
    case KeeperMessage::kStop: check(DecodeStop(packet), EncodeStop); break;
    case KeeperMessage::kForget: check(DecodeForget(packet), EncodeForget); break;
    case KeeperMessage::kShutdown: check(DecodeShutdown(packet), EncodeShutdown); break;
    case KeeperMessage::kRemember: check(DecodeRemember(packet), EncodeRemember); break;
    case KeeperMessage::kHello: check(DecodeKeeperHello(packet), EncodeKeeperHello); break;
    case KeeperMessage::kWorker: check(DecodeWorker(packet), EncodeWorker); break;
  }
  return 0;
}
