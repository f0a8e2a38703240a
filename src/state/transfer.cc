#include "state/transfer.h"

#include "base/cluster.h"
#include "base/codec.h"
#include "state/layout.h"

namespace locum {
namespace {

constexpr uint32_t kRequestMagic = 0x5044434c;  // "LCDP"
constexpr uint32_t kAnswerMagic = 0x4144434c;   // "LCDA"
constexpr uint32_t kChunkMagic = 0x4344434c;    // "LCDC"

Status Short(const char* what, size_t have, size_t want) {
  return Invalid(std::string(what) + " has " + std::to_string(have) + " bytes, not " + std::to_string(want));
}

}  // namespace

std::string EncodeRequest(const DataRequest& request) {
  Writer body;
  body.Str(request.token);
  body.Str(request.job);
  body.U64(request.target.value);
  body.U8(static_cast<uint8_t>(request.kind));
  body.U64(request.generation.value);
  body.U64(request.step.value);
  body.U64(request.layout_hash);
  body.U64(request.first_chunk);
  body.U64(request.chunk_count);
  body.U64(request.bytes);
  LOCUM_CHECK(body.data().size() <= kMaxRequestBody);
  Writer w;
  w.U32(kRequestMagic);
  w.U32(kProtocolVersion);
  w.U32(static_cast<uint32_t>(body.data().size()));
  w.Raw(body.data().data(), body.data().size());
  return w.Take();
}

Result<uint32_t> DecodeRequestPrefix(std::string_view prefix) {
  if (prefix.size() != kRequestPrefixBytes) return Short("a data request's head", prefix.size(), kRequestPrefixBytes);
  Reader r(prefix);
  if (r.U32() != kRequestMagic) return Invalid("not a Locum data connection: wrong magic number");
  if (const uint32_t version = r.U32(); version != kProtocolVersion) {
    return Invalid("data protocol version " + std::to_string(version) + ", this side has " +
                   std::to_string(kProtocolVersion) + "; run the same Locum everywhere");
  }
  const uint32_t bytes = r.U32();
  if (bytes == 0 || bytes > kMaxRequestBody) {
    return Invalid("data request of " + std::to_string(bytes) + " bytes, allowed are 1 to " +
                   std::to_string(kMaxRequestBody));
  }
  return bytes;
}

Result<DataRequest> DecodeRequestBody(std::string_view body) {
  Reader r(body);
  DataRequest v;
  v.token = r.Str();
  v.job = r.Str();
  v.target = Incarnation(r.U64());
  const uint8_t kind = r.U8();
  v.kind = static_cast<DataKind>(kind);
  v.generation = Generation(r.U64());
  v.step = Step(r.U64());
  v.layout_hash = r.U64();
  v.first_chunk = r.U64();
  v.chunk_count = r.U64();
  v.bytes = r.U64();
  if (!r.Done()) return Invalid("data request is too short or too long");
  if (kind < 1 || kind > 3) return Invalid("data request of unknown kind " + std::to_string(kind));
  if (v.generation.value > kMaxGeneration || v.step.value > kMaxStep) {
    return Invalid("data request names a generation or step out of range");
  }
  constexpr uint64_t kMaxChunks = kMaxStateBytes / kChunkBytes + kMaxShards;
  if (v.first_chunk > kMaxChunks || v.chunk_count > kMaxChunks) return Invalid("data request's chunks are out of range");
  if (v.kind == DataKind::kPull && v.chunk_count == 0) return Invalid("data request for no chunks");
  if (v.bytes > kMaxEchoBytes) return Invalid("echo of more than " + std::to_string(kMaxEchoBytes) + " bytes");
  return v;
}

std::string EncodeAnswer(const DataAnswer& answer) {
  const std::string text = answer.text.substr(0, kMaxAnswerText);
  Writer w;
  w.U32(kAnswerMagic);
  w.U32(static_cast<uint32_t>(answer.code));
  w.Str(text);
  return w.Take();
}

Result<AnswerPrefix> DecodeAnswerPrefix(std::string_view prefix) {
  if (prefix.size() != kAnswerPrefixBytes) return Short("a data answer's head", prefix.size(), kAnswerPrefixBytes);
  Reader r(prefix);
  if (r.U32() != kAnswerMagic) return Invalid("the peer's answer is not Locum's: wrong magic number");
  const uint32_t code = r.U32();
  const uint32_t bytes = r.U32();
  if (code > 2) return Invalid("answer with unknown code " + std::to_string(code));
  if (bytes > kMaxAnswerText) return Invalid("answer with a text of " + std::to_string(bytes) + " bytes");
  return AnswerPrefix{static_cast<AnswerCode>(code), bytes};
}

std::string EncodeChunkHeader(const ChunkHeader& header) {
  Writer w;
  w.U64(header.index);
  w.U32(header.bytes);
  w.U32(kChunkMagic);
  w.U64(header.hash);
  return w.Take();
}

Result<ChunkHeader> DecodeChunkHeader(std::string_view bytes) {
  if (bytes.size() != kChunkHeaderBytes) return Short("a chunk's head", bytes.size(), kChunkHeaderBytes);
  Reader r(bytes);
  ChunkHeader v;
  v.index = r.U64();
  v.bytes = r.U32();
  const uint32_t magic = r.U32();
  v.hash = r.U64();
  if (magic != kChunkMagic) return Invalid("chunk with a wrong magic number");
  if (v.bytes == 0 || v.bytes > kChunkBytes) return Invalid("chunk of " + std::to_string(v.bytes) + " bytes");
  return v;
}

std::string EncodeStoreRequest(const StoreRequest& request) {
  Writer w;
  w.U32(static_cast<uint32_t>(request.operation));
  w.U32(request.key_bytes);
  w.U32(request.value_bytes);
  return w.Take();
}

Result<StoreRequest> DecodeStoreRequest(std::string_view bytes) {
  if (bytes.size() != kStoreRequestBytes) return Short("a store request's head", bytes.size(), kStoreRequestBytes);
  Reader r(bytes);
  const uint32_t operation = r.U32();
  StoreRequest v;
  v.key_bytes = r.U32();
  v.value_bytes = r.U32();
  if (operation != 1 && operation != 2) return Invalid("unknown store operation " + std::to_string(operation));
  v.operation = static_cast<StoreOperation>(operation);
  if (v.key_bytes == 0 || v.key_bytes > kMaxStoreKey) {
    return Invalid("store key of " + std::to_string(v.key_bytes) + " bytes, allowed are 1 to " +
                   std::to_string(kMaxStoreKey));
  }
  if (v.value_bytes > kMaxStoreValue) {
    return Invalid("store value of " + std::to_string(v.value_bytes) + " bytes, allowed are " +
                   std::to_string(kMaxStoreValue));
  }
  if (v.operation == StoreOperation::kGet && v.value_bytes != 0) return Invalid("store get with a value");
  return v;
}

std::string EncodeStoreReply(const StoreReply& reply) {
  Writer w;
  w.U32(static_cast<uint32_t>(reply.code));
  w.U32(reply.value_bytes);
  return w.Take();
}

Result<StoreReply> DecodeStoreReply(std::string_view bytes) {
  if (bytes.size() != kStoreReplyBytes) return Short("a store reply's head", bytes.size(), kStoreReplyBytes);
  Reader r(bytes);
  const uint32_t code = r.U32();
  const uint32_t value = r.U32();
  if (code > 2) return Invalid("store reply with unknown code " + std::to_string(code));
  if (value > kMaxStoreValue) return Invalid("store reply of " + std::to_string(value) + " bytes");
  return StoreReply{static_cast<StoreCode>(code), value};
}

}  // namespace locum
