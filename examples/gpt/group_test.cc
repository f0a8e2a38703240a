#include "group.h"

#include <gloo/rendezvous/store.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace gpt {
namespace {

using std::chrono::milliseconds;

// In memory; `get` waits for the key.
class WaitingStore final : public gloo::rendezvous::Store {
 public:
  void set(const std::string& key, const std::vector<char>& value) override {
    std::lock_guard<std::mutex> lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::vector<char> get(const std::string& key) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return values_.count(key) != 0; });
    return values_[key];
  }
  void wait(const std::vector<std::string>&) override {}

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<char>> values_;
};

constexpr size_t kCount = 100'003;

// The ranks of these tests are threads. Time-outs are far beyond a test's own limit: what returns, returns for
// another reason.
GroupOptions Patient() {
  GroupOptions options;
  options.connect_timeout = options.collective_timeout = milliseconds(600'000);
  return options;
}

std::shared_ptr<float> Values(int rank) {
  std::shared_ptr<float> values(new float[kCount], std::default_delete<float[]>());
  for (size_t i = 0; i < kCount; i++) values.get()[i] = 1.0f / static_cast<float>(1 + (i * 7 + rank * 13) % 1009);
  return values;
}

class GroupTest : public ::testing::Test {
 protected:
  void Start(int size) {
    for (int rank = 0; rank < size; rank++) groups_.push_back(std::make_unique<Group>(Patient()));
  }

  template <class Body>
  void OnEveryRank(Body body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < groups_.size(); rank++) {
      threads.emplace_back([&, rank] { body(static_cast<int>(rank), *groups_[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void ConnectAll(uint64_t generation) {
    store_ = std::make_shared<WaitingStore>();
    OnEveryRank([&](int rank, Group& group) {
      std::string why;
      EXPECT_TRUE(group.Connect(store_, rank, static_cast<int>(groups_.size()), {generation, 0, 0}, &why)) << why;
    });
  }

  std::vector<std::shared_ptr<float>> SumAll() {
    std::vector<std::shared_ptr<float>> all(groups_.size());
    OnEveryRank([&](int rank, Group& group) {
      std::string why;
      all[rank] = Values(rank);
      EXPECT_TRUE(group.AllReduceSum(all[rank], kCount, &why)) << why;
    });
    return all;
  }

  std::shared_ptr<WaitingStore> store_;
  std::vector<std::unique_ptr<Group>> groups_;
};

bool SameBits(const std::shared_ptr<float>& a, const std::shared_ptr<float>& b) {
  return std::memcmp(a.get(), b.get(), kCount * sizeof(float)) == 0;
}

TEST_F(GroupTest, AllReduce_OfFourRanks_SumsAndGivesEveryRankTheSameBits) {
  Start(4);
  ConnectAll(1);
  const auto sums = SumAll();
  std::vector<std::shared_ptr<float>> values;
  for (int rank = 0; rank < 4; rank++) values.push_back(Values(rank));
  for (size_t i = 0; i < kCount; i += 101) {
    float expected = 0;
    for (const auto& of_rank : values) expected += of_rank.get()[i];
    EXPECT_NEAR(sums[0].get()[i], expected, 1e-5);
  }
  for (int rank = 1; rank < 4; rank++) EXPECT_TRUE(SameBits(sums[0], sums[rank]));
}

TEST_F(GroupTest, RebuiltGroup_GivesTheSameBits) {
  Start(4);
  ConnectAll(1);
  const auto first = SumAll();
  for (uint64_t generation = 2; generation < 7; generation++) {
    if (generation % 2 == 0) {
      groups_[generation % 4]->Abort();
      groups_[generation % 4]->Rearm();
    }
    ConnectAll(generation);
    EXPECT_TRUE(SameBits(first[0], SumAll()[3]));
  }
}

TEST_F(GroupTest, Abort_WhileAPeerNeverEnters_ReturnsAndLetsGoOfTheBuffer) {
  Start(2);
  ConnectAll(1);
  std::shared_ptr<float> values = Values(0);
  std::thread breaker([&] {
    while (values.use_count() == 1) std::this_thread::yield();  // until the collective has them
    groups_[0]->Abort();
  });
  std::string why;
  EXPECT_FALSE(groups_[0]->AllReduceSum(values, kCount, &why));
  breaker.join();
  EXPECT_EQ(why, "aborted");
  while (values.use_count() > 1) std::this_thread::sleep_for(milliseconds(1));
  // The peer learns of it by its connection.
  EXPECT_FALSE(groups_[1]->AllReduceSum(Values(1), kCount, &why));
  EXPECT_NE(why, "aborted");
  // Both are as good as new.
  groups_[0]->Rearm();
  ConnectAll(2);
  SumAll();
}

TEST_F(GroupTest, Abort_WhileConnecting_Returns) {
  Start(2);
  auto store = std::make_shared<WaitingStore>();
  // A peer that has published an address but never connects: this rank waits for it, or it for this rank.
  std::thread breaker([&] {
    const std::vector<char> address = store->get("gloo/0");
    store->set("gloo/1", address);
    groups_[0]->Abort();
  });
  std::string why;
  EXPECT_FALSE(groups_[0]->Connect(store, 0, 2, {1, 0, 0}, &why));
  breaker.join();
}

TEST_F(GroupTest, Abort_BeforeConnecting_HoldsUntilRearm) {
  Start(2);
  groups_[0]->Abort();
  std::string why;
  EXPECT_FALSE(groups_[0]->Connect(std::make_shared<WaitingStore>(), 0, 2, {1, 0, 0}, &why));
  EXPECT_EQ(why, "aborted");
  groups_[0]->Rearm();
  ConnectAll(2);
  SumAll();
}

TEST_F(GroupTest, Connect_OfRanksAtDifferentSteps_IsRefusedNamingBoth) {
  Start(2);
  auto store = std::make_shared<WaitingStore>();
  OnEveryRank([&](int rank, Group& group) {
    std::string why;
    EXPECT_FALSE(group.Connect(store, rank, 2, {1, rank == 0 ? 40ull : 41ull, 0}, &why));
    EXPECT_EQ(why, rank == 0 ? "rank 1 is at step 41, rank 0 at 40" : "rank 0 is at step 40, rank 1 at 41");
  });
}

TEST_F(GroupTest, Connect_OfRanksWithDifferentState_IsRefused) {
  Start(2);
  auto store = std::make_shared<WaitingStore>();
  OnEveryRank([&](int rank, Group& group) {
    std::string why;
    EXPECT_FALSE(group.Connect(store, rank, 2, {1, 40, rank == 0 ? 7ull : 8ull}, &why));
    EXPECT_EQ(why, rank == 0 ? "rank 1 is at state hash 8, rank 0 at 7" : "rank 0 is at state hash 7, rank 1 at 8");
  });
}

TEST_F(GroupTest, AllReduce_WithoutConnect_Fails) {
  Start(1);
  std::string why;
  EXPECT_FALSE(groups_[0]->AllReduceSum(Values(0), kCount, &why));
  EXPECT_EQ(why, "not connected");
}

}  // namespace
}  // namespace gpt
