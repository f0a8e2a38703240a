// What a data port reads from strangers, and what a puller reads from a source.
#include "seeds.h"
#include "state/layout.h"
#include "state/transfer.h"

using namespace locum;  // NOLINT

std::vector<std::string> FuzzSeeds() {
  DataRequest pull;
  pull.token = "token";
  pull.job = "job";
  pull.target = Incarnation(3);
  pull.generation = Generation(2);
  pull.step = Step(9);
  pull.chunk_count = 4;
  DataRequest store = pull, echo = pull;
  store.kind = DataKind::kStore;
  echo.kind = DataKind::kEcho;
  echo.bytes = 1000;
  return {EncodeRequest(pull),
          EncodeRequest(store),
          EncodeRequest(echo),
          EncodeAnswer({AnswerCode::kNotNow, "later"}),
          EncodeChunkHeader({1, 4096, 77}),
          EncodeStoreRequest({StoreOperation::kSet, 3, 9}),
          EncodeStoreReply({StoreCode::kOk, 9})};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in = FuzzText(data, size);
  if (in.size() >= kRequestPrefixBytes) {
    const auto bytes = DecodeRequestPrefix(in.substr(0, kRequestPrefixBytes));
    if (bytes.ok()) {
      LOCUM_CHECK(*bytes <= kMaxRequestBody);
      const std::string_view body = in.substr(kRequestPrefixBytes);
      if (auto v = DecodeRequestBody(body); v.ok() && body.size() == *bytes) LOCUM_CHECK(EncodeRequest(*v) == in);
    }
  }
  if (auto v = DecodeRequestBody(in); v.ok()) {
    LOCUM_CHECK(v->generation.value <= kMaxGeneration && v->step.value <= kMaxStep);
  }
  if (auto v = DecodeAnswerPrefix(in); v.ok()) LOCUM_CHECK(v->text_bytes <= kMaxAnswerText);
  if (auto v = DecodeChunkHeader(in); v.ok()) {
    LOCUM_CHECK(v->bytes <= kChunkBytes && EncodeChunkHeader(*v) == in);
  }
  if (auto v = DecodeStoreRequest(in); v.ok()) {
    LOCUM_CHECK(v->key_bytes <= kMaxStoreKey && v->value_bytes <= kMaxStoreValue && EncodeStoreRequest(*v) == in);
  }
  if (auto v = DecodeStoreReply(in); v.ok()) LOCUM_CHECK(EncodeStoreReply(*v) == in);
  return 0;
}
