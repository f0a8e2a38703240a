#include "adapters/posix/record_file.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

namespace locum {
namespace {

class RecordFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/locum_records_XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

TEST_F(RecordFileTest, Records_AreInTheFileInOrderAcrossSegments) {
  auto file = RecordFile::Create(dir_ + "/log", "HEAD", 64).value();
  const uint64_t per_segment = RecordFile::kSegmentBytes / 64;
  for (uint64_t i = 0; i < per_segment + 3; ++i) {
    if (file->WantsGrowth()) {
      ASSERT_TRUE(file->Grow().ok());
    }
    void* record = file->Next();
    ASSERT_NE(record, nullptr);
    std::memcpy(record, &i, sizeof i);
  }
  EXPECT_EQ(file->dropped(), 0u);
  FILE* in = std::fopen((dir_ + "/log").c_str(), "rb");
  char head[4];
  ASSERT_EQ(std::fread(head, 1, 4, in), 4u);
  EXPECT_EQ(std::string(head, 4), "HEAD");
  for (const uint64_t i : {uint64_t{0}, per_segment - 1, per_segment, per_segment + 2}) {
    uint64_t value = 0;
    std::fseek(in, static_cast<long>(RecordFile::kHeadBytes + i * 64), SEEK_SET);
    ASSERT_EQ(std::fread(&value, 1, 8, in), 8u);
    EXPECT_EQ(value, i);
  }
  std::fclose(in);
}

TEST_F(RecordFileTest, NotGrownInTime_DropsAndCounts) {
  auto file = RecordFile::Create(dir_ + "/log", "", 64).value();
  const uint64_t per_segment = RecordFile::kSegmentBytes / 64;
  for (uint64_t i = 0; i < per_segment; ++i) ASSERT_NE(file->Next(), nullptr);
  EXPECT_EQ(file->Next(), nullptr);
  EXPECT_EQ(file->Next(), nullptr);
  EXPECT_EQ(file->dropped(), 2u);
  ASSERT_TRUE(file->Grow().ok());
  EXPECT_NE(file->Next(), nullptr);
}

TEST_F(RecordFileTest, NoFolder_IsAnErrorThatNamesThePath) {
  auto file = RecordFile::Create(dir_ + "/none/log", "", 64);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find(dir_ + "/none/log"), std::string::npos);
}

// A file system of 6 MiB: one segment fits, the second does not, and no write ends in SIGBUS.
TEST_F(RecordFileTest, FullDisk_DropsRecordsUntilThereIsRoom) {
  if (::mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=6m") != 0) GTEST_SKIP() << "needs the right to mount";
  {
    auto file = RecordFile::Create(dir_ + "/log", "", 64).value();
    const uint64_t per_segment = RecordFile::kSegmentBytes / 64;
    EXPECT_EQ(file->Grow().code(), Code::kUnavailable);
    for (uint64_t i = 0; i < per_segment; ++i) {
      void* record = file->Next();
      ASSERT_NE(record, nullptr);
      std::memset(record, 1, 64);
    }
    EXPECT_EQ(file->Next(), nullptr);
    EXPECT_EQ(file->dropped(), 1u);
    EXPECT_EQ(::mount("tmpfs", dir_.c_str(), "tmpfs", MS_REMOUNT, "size=16m"), 0);
    EXPECT_TRUE(file->Grow().ok());
    EXPECT_NE(file->Next(), nullptr);
  }
  ::umount2(dir_.c_str(), MNT_DETACH);
}

TEST_F(RecordFileTest, NoRoomAtAll_StillJoinsAndDrops) {
  if (::mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=4k") != 0) GTEST_SKIP() << "needs the right to mount";
  {
    auto file = RecordFile::Create(dir_ + "/log", "x", 64);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ((*file)->Next(), nullptr);
    EXPECT_EQ((*file)->dropped(), 1u);
  }
  ::umount2(dir_.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace locum
