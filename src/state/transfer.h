// What is said on a worker's data port. A connection begins with one request, answered once; what follows
// depends on its kind:
//
//   pull   the source sends the chunks of the range in order, each a ChunkHeader and its bytes, straight from
//          registered memory, and nothing after the last
//   store  the client sends StoreRequest headers with key and value; each is answered by a StoreReply with a
//          value, in order. A get is answered when the key is there.
//   echo   the client sends blocks of kEchoBlockBytes (the last one shorter), each is sent back as it is
//
//   request  u32 magic "LCDP", u32 version, u32 bytes of the body, body
//   answer   u32 magic "LCDA", u32 code, u32 bytes of the text, text
//   chunk    u64 index, u32 bytes, u32 magic "LCDC", u64 XXH3 of the bytes
//   store request  u32 operation, u32 key bytes, u32 value bytes; key; value
//   store reply    u32 code, u32 value bytes; value (or the text of an error)
//
// All little-endian. A request carries the job's token; who has the wrong one, or means another job or
// another incarnation of the worker, is refused before anything else is looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/token.h"
#include "base/ids.h"
#include "base/status.h"

namespace locum {

enum class DataKind : uint8_t { kPull = 1, kStore = 2, kEcho = 3 };

inline constexpr size_t kRequestPrefixBytes = 12;
inline constexpr uint32_t kMaxRequestBody = 4096;
inline constexpr size_t kAnswerPrefixBytes = 12;
inline constexpr uint32_t kMaxAnswerText = 1024;
inline constexpr size_t kChunkHeaderBytes = 24;
inline constexpr size_t kStoreRequestBytes = 12;
inline constexpr size_t kStoreReplyBytes = 8;
inline constexpr uint32_t kMaxStoreKey = 4096;
inline constexpr uint32_t kMaxStoreValue = 16u << 20;
inline constexpr uint64_t kEchoBlockBytes = 256u << 10;
inline constexpr uint64_t kMaxEchoBytes = 1ull << 30;

struct DataRequest {
  std::string token;
  std::string job;
  Incarnation target;
  DataKind kind = DataKind::kPull;
  Generation generation;     // pull, store
  Step step;                 // pull
  uint64_t layout_hash = 0;  // pull
  uint64_t first_chunk = 0;  // pull
  uint64_t chunk_count = 0;  // pull; at least 1
  uint64_t bytes = 0;        // echo
  friend bool operator==(const DataRequest&, const DataRequest&) = default;
};

enum class AnswerCode : uint32_t {
  kOk = 0,
  kRefused = 1,  // asking again will not help
  kNotNow = 2,   // not in the state that is asked for; another source may be
};
struct DataAnswer {
  AnswerCode code = AnswerCode::kOk;
  std::string text;
  friend bool operator==(const DataAnswer&, const DataAnswer&) = default;
};

struct ChunkHeader {
  uint64_t index = 0;
  uint32_t bytes = 0;
  uint64_t hash = 0;
  friend bool operator==(const ChunkHeader&, const ChunkHeader&) = default;
};

enum class StoreOperation : uint32_t { kSet = 1, kGet = 2 };
struct StoreRequest {
  StoreOperation operation = StoreOperation::kSet;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  friend bool operator==(const StoreRequest&, const StoreRequest&) = default;
};
enum class StoreCode : uint32_t {
  kOk = 0,
  kOver = 1,     // the generation has ended
  kRefused = 2,  // a limit was passed; the value is the text
};
struct StoreReply {
  StoreCode code = StoreCode::kOk;
  uint32_t value_bytes = 0;
  friend bool operator==(const StoreReply&, const StoreReply&) = default;
};

std::string EncodeRequest(const DataRequest& request);  // prefix and body
// The size of the body, from the kRequestPrefixBytes before it.
Result<uint32_t> DecodeRequestPrefix(std::string_view prefix);
Result<DataRequest> DecodeRequestBody(std::string_view body);

std::string EncodeAnswer(const DataAnswer& answer);
struct AnswerPrefix {
  AnswerCode code = AnswerCode::kOk;
  uint32_t text_bytes = 0;
};
Result<AnswerPrefix> DecodeAnswerPrefix(std::string_view prefix);

std::string EncodeChunkHeader(const ChunkHeader& header);
Result<ChunkHeader> DecodeChunkHeader(std::string_view bytes);

std::string EncodeStoreRequest(const StoreRequest& request);
Result<StoreRequest> DecodeStoreRequest(std::string_view bytes);
std::string EncodeStoreReply(const StoreReply& reply);
Result<StoreReply> DecodeStoreReply(std::string_view bytes);


}  // namespace locum
