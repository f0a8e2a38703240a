#include "worker/store_table.h"

#include <gmock/gmock.h>

namespace locum {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StoreTable, SetBeforeGet_AnswersAtOnce) {
  StoreTable table;
  EXPECT_THAT(*table.Set("k", "v"), IsEmpty());
  EXPECT_EQ(**table.Get("k", 1), "v");
}

TEST(StoreTable, GetBeforeSet_WaitersAreToldOnce) {
  StoreTable table;
  EXPECT_EQ(*table.Get("k", 1), nullptr);
  EXPECT_EQ(*table.Get("k", 2), nullptr);
  EXPECT_EQ(*table.Get("other", 3), nullptr);
  table.Drop(2);
  EXPECT_THAT(*table.Set("k", "v"), ElementsAre(1));
  EXPECT_THAT(*table.Set("k", "w"), IsEmpty());
  EXPECT_EQ(**table.Get("k", 1), "w");
}

TEST(StoreTable, NewGeneration_ForgetsKeysAndWaiters) {
  StoreTable table;
  (void)table.Set("k", "v");
  (void)table.Get("w", 1);
  table.Begin(Generation(2));
  EXPECT_EQ(*table.Get("k", 2), nullptr);
  EXPECT_THAT(*table.Set("w", "x"), IsEmpty());
}

TEST(StoreTable, Limit_IsOnWhatIsHeldNow) {
  StoreTable table;
  const std::string large(16u << 20, 'x');
  for (int i = 0; i < 15; ++i) ASSERT_TRUE(table.Set("k" + std::to_string(i), large).ok());
  EXPECT_EQ(table.Set("one more", large + large).status().code(), Code::kRefused);
  EXPECT_TRUE(table.Set("k0", "small").ok());
  EXPECT_TRUE(table.Set("one more", large).ok());
}

}  // namespace
}  // namespace locum
