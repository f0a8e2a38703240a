#include "state/layout.h"

#include <gtest/gtest.h>

#include "state/hash.h"
#include "state/hash_kernels.h"

namespace locum {
namespace {

Layout Make(const std::vector<Shard>& shards) {
  Layout layout;
  for (const Shard& shard : shards) EXPECT_TRUE(layout.Add(shard).ok());
  return layout;
}

TEST(Layout, Chunks_CoverEveryByteOnceShardByShard) {
  const Layout layout = Make({{"a", kChunkBytes + 1, "all"}, {"empty", 0, "all"}, {"b", 7, "all"},
                              {"c", 2 * kChunkBytes, "all"}, {"last", 0, "all"}});
  ASSERT_EQ(layout.chunk_count(), 5u);
  uint64_t position = 0;
  std::vector<uint64_t> covered(layout.shards().size());
  for (uint64_t i = 0; i < layout.chunk_count(); ++i) {
    const Chunk chunk = layout.At(i);
    EXPECT_EQ(chunk.position, position);
    EXPECT_EQ(chunk.offset, covered[chunk.shard]);
    EXPECT_GT(chunk.bytes, 0u);
    EXPECT_LE(chunk.bytes, kChunkBytes);
    position += chunk.bytes;
    covered[chunk.shard] += chunk.bytes;
  }
  EXPECT_EQ(position, layout.bytes());
  for (size_t s = 0; s < covered.size(); ++s) EXPECT_EQ(covered[s], layout.shards()[s].bytes);
}

TEST(Layout, Hash_DependsOnNamesSizesAndOrder) {
  const uint64_t hash = Make({{"a", 1, "all"}, {"b", 2, "all"}}).Hash();
  EXPECT_EQ(hash, Make({{"a", 1, "all"}, {"b", 2, "all"}}).Hash());
  EXPECT_NE(hash, Make({{"b", 2, "all"}, {"a", 1, "all"}}).Hash());
  EXPECT_NE(hash, Make({{"a", 1, "all"}, {"c", 2, "all"}}).Hash());
  EXPECT_NE(hash, Make({{"a", 2, "all"}, {"b", 1, "all"}}).Hash());
}

TEST(Layout, TooLarge_IsRefusedWithoutOverflow) {
  Layout layout;
  EXPECT_TRUE(layout.Add({"a", 10, "all"}).ok());
  EXPECT_FALSE(layout.Add({"b", UINT64_MAX, "all"}).ok());
  EXPECT_FALSE(layout.Add({"b", kMaxStateBytes, "all"}).ok());
  EXPECT_EQ(layout.bytes(), 10u);
}

TEST(StateHash, OneDifferentChunk_ChangesIt) {
  EXPECT_NE(StateHash(1, {1, 2, 3}), StateHash(1, {1, 2, 4}));
  EXPECT_NE(StateHash(1, {1, 2, 3}), StateHash(2, {1, 2, 3}));
  EXPECT_NE(StateHash(1, {1, 2}), StateHash(1, {2, 1}));
}

TEST(Hash64, EveryInstructionSet_GivesTheSameValue) {
  std::string text(300'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 131 + (i >> 8));
  for (const size_t size : {0ul, 1ul, 16ul, 17ul, 128ul, 240ul, 241ul, 1024ul, 4097ul, 300'000ul}) {
    const uint64_t expected = Hash64Baseline(text.data(), size);
    EXPECT_EQ(Hash64(text.data(), size), expected);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
      EXPECT_EQ(Hash64Avx2(text.data(), size), expected);
    }
    if (__builtin_cpu_supports("avx512f")) {
      EXPECT_EQ(Hash64Avx512(text.data(), size), expected);
    }
#endif
  }
  // The published value of XXH3_64bits for no bytes.
  EXPECT_EQ(Hash64("", 0), 0x2d06800538d394c2ull);
}

}  // namespace
}  // namespace locum
