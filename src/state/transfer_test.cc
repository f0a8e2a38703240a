#include "state/transfer.h"

#include <gtest/gtest.h>

#include "state/layout.h"

namespace locum {
namespace {

DataRequest Full() {
  DataRequest v;
  v.token = "token";
  v.job = "job";
  v.target = Incarnation(3);
  v.kind = DataKind::kPull;
  v.generation = Generation(4);
  v.step = Step(5);
  v.layout_hash = 6;
  v.first_chunk = 7;
  v.chunk_count = 8;
  return v;
}

Result<DataRequest> Back(const DataRequest& request) {
  const std::string bytes = EncodeRequest(request);
  const Result<uint32_t> size = DecodeRequestPrefix(bytes.substr(0, kRequestPrefixBytes));
  if (!size.ok()) return size.status();
  EXPECT_EQ(*size, bytes.size() - kRequestPrefixBytes);
  return DecodeRequestBody(bytes.substr(kRequestPrefixBytes));
}

TEST(Transfer, Messages_ComeBackAsTheyWere) {
  EXPECT_EQ(*Back(Full()), Full());
  const std::string answer = EncodeAnswer({AnswerCode::kNotNow, "later"});
  auto prefix = DecodeAnswerPrefix(answer.substr(0, kAnswerPrefixBytes));
  ASSERT_TRUE(prefix.ok());
  EXPECT_EQ(prefix->code, AnswerCode::kNotNow);
  EXPECT_EQ(answer.substr(kAnswerPrefixBytes), "later");
  const ChunkHeader chunk{9, 10, 11};
  EXPECT_EQ(*DecodeChunkHeader(EncodeChunkHeader(chunk)), chunk);
  const StoreRequest set{StoreOperation::kSet, 3, 4};
  EXPECT_EQ(*DecodeStoreRequest(EncodeStoreRequest(set)), set);
  const StoreReply reply{StoreCode::kOver, 5};
  EXPECT_EQ(*DecodeStoreReply(EncodeStoreReply(reply)), reply);
}

TEST(Transfer, ValuesOutOfRange_AreRejected) {
  DataRequest v = Full();
  v.generation = Generation(kMaxGeneration + 1);
  EXPECT_FALSE(Back(v).ok());
  v = Full();
  v.chunk_count = 0;
  EXPECT_FALSE(Back(v).ok());
  v = Full();
  v.first_chunk = UINT64_MAX;
  EXPECT_FALSE(Back(v).ok());
  v = Full();
  v.kind = static_cast<DataKind>(4);
  EXPECT_FALSE(Back(v).ok());
  v = Full();
  v.bytes = kMaxEchoBytes + 1;
  EXPECT_FALSE(Back(v).ok());
  EXPECT_FALSE(DecodeChunkHeader(EncodeChunkHeader({0, static_cast<uint32_t>(kChunkBytes + 1), 0})).ok());
  EXPECT_FALSE(DecodeChunkHeader(EncodeChunkHeader({0, 0, 0})).ok());
  EXPECT_FALSE(DecodeStoreRequest(EncodeStoreRequest({StoreOperation::kSet, 0, 1})).ok());
  EXPECT_FALSE(DecodeStoreRequest(EncodeStoreRequest({StoreOperation::kSet, kMaxStoreKey + 1, 1})).ok());
  EXPECT_FALSE(DecodeStoreRequest(EncodeStoreRequest({StoreOperation::kGet, 1, 1})).ok());
  EXPECT_FALSE(DecodeStoreReply(EncodeStoreReply({StoreCode::kOk, kMaxStoreValue + 1})).ok());
}

TEST(Transfer, WrongMagicOrVersion_IsRejected) {
  std::string bytes = EncodeRequest(Full()).substr(0, kRequestPrefixBytes);
  std::string wrong = bytes;
  wrong[0] ^= 1;
  EXPECT_FALSE(DecodeRequestPrefix(wrong).ok());
  wrong = bytes;
  wrong[4] ^= 64;
  const Status status = DecodeRequestPrefix(wrong).status();
  EXPECT_NE(status.message().find("data protocol version"), std::string::npos);
  EXPECT_FALSE(DecodeRequestPrefix(bytes.substr(1)).ok());
}

TEST(SameToken, Differences_AreFound) {
  EXPECT_TRUE(SameToken("abc", "abc"));
  EXPECT_FALSE(SameToken("abc", "abd"));
  EXPECT_FALSE(SameToken("abc", "ab"));
  EXPECT_TRUE(SameToken("", ""));
}

}  // namespace
}  // namespace locum
