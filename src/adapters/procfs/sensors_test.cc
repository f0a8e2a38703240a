#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "adapters/procfs/cpu_sensor.h"
#include "adapters/procfs/disk_sensor.h"
#include "adapters/procfs/memory_sensor.h"
#include "adapters/procfs/network_sensor.h"
#include "adapters/procfs/node_sensor.h"
#include "adapters/procfs/text_file.h"

namespace locum {
namespace {

constexpr char kStat[] =
    "cpu  3863 10 3001 184142 411 7 156 15 99 98\ncpu0 1164 0 1121 93404 10 0 86 4 0 0\nintr 5\nctxt 12\n";
constexpr char kMemInfo[] = "MemTotal:      1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\nBuffers: 1 kB\n";
constexpr char kDiskStats[] =
    "   7       0 loop0 5 0 1000 0 0 0 1000 0 0 0 0\n"
    " 259       0 nvme0n1 41383 7364 3284538 11302 35983 10158 2411528 7223 0 7104 18909 2748 0 99608 200 4833 182\n"
    " 259       1 nvme0n1p1 1 1 1 1 1 1 1 1 1 1 1\n"
    " 253       0 dm-0 1 1 1 1 1 1 1 1 1 1 1\n";
constexpr char kNetDev[] =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier "
    "compressed\n"
    "    lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0\n"
    "  eth0:70131616    1741    0    0    0     0          0         0    57182     733    0    0    0     0     0 0\n"
    "eth0:1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";

// A made-up /proc and /sys.
class FakeRoot {
 public:
  FakeRoot() {
    char pattern[] = "/tmp/locum-root-XXXXXX";
    if (::mkdtemp(pattern) == nullptr) std::abort();
    path_ = pattern;
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
    std::ofstream(path_ + file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(CpuSensor, RealText_IsBusyAndIdle) {
  std::optional<CpuTimes> times = ParseCpuTimes(kStat);
  ASSERT_TRUE(times);
  EXPECT_EQ(times->busy, 3863u + 10 + 3001 + 7 + 156 + 15);  // guests are in user and nice already
  EXPECT_EQ(times->idle, 184142u + 411);
}

TEST(CpuSensor, BrokenText_IsNothing) {
  EXPECT_FALSE(ParseCpuTimes(""));
  EXPECT_FALSE(ParseCpuTimes("cpu0 1 2 3 4 5\n"));
  EXPECT_FALSE(ParseCpuTimes("cpu 1 2 3"));
  EXPECT_FALSE(ParseCpuTimes("cpu 1 2 x 4 5"));
  EXPECT_FALSE(ParseCpuTimes("cpu 1 2 -3 4 5"));
  EXPECT_FALSE(ParseCpuTimes("cpu 99999999999999999999999 2 3 4 5"));
}

TEST(CpuSensor, Share_IsPermille) {
  EXPECT_EQ(BusyPermille({100, 100}, {200, 400}), 250u);
  EXPECT_EQ(BusyPermille({100, 100}, {100, 100}), 0u);
  EXPECT_EQ(BusyPermille({100, 100}, {150, 90}), 1000u);  // idle stepped back
}

TEST(MemorySensor, RealText_IsUsedAndTotal) {
  EXPECT_EQ(ParseMemInfo(kMemInfo), (MemoryUse{600 * 1024, 1000 * 1024}));
  EXPECT_FALSE(ParseMemInfo("MemTotal: 1000 kB\n"));
  EXPECT_FALSE(ParseMemInfo("MemTotal: 1000 kB\nMemAvailable: 2000 kB\n"));
  EXPECT_FALSE(ParseMemInfo("MemTotal:\nMemAvailable: 1 kB\n"));
}

TEST(MemorySensor, Groups_AreFoundUpToTheRoot) {
  std::vector<MemoryGroup> groups =
      ParseMemoryGroups("9:name=systemd:/\n4:cpu,memory:/a/b\n0::/x\nbroken\n1:memory:c\n");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].version, 1);
  EXPECT_EQ(groups[0].folders, (std::vector<std::string>{"/memory/a/b", "/memory/a", "/memory"}));
  EXPECT_EQ(groups[1].version, 2);
  EXPECT_EQ(groups[1].folders, (std::vector<std::string>{"/x", ""}));
  EXPECT_TRUE(ParseMemoryGroups("0::/../../etc\n").empty());
}

TEST(MemorySensor, NoGroup_IsTheMachine) {
  FakeRoot root;
  root.Write("/proc/meminfo", kMemInfo);
  EXPECT_EQ(ReadMemory(root.path()), (MemoryUse{600 * 1024, 1000 * 1024}));
}

TEST(MemorySensor, TightestVersion2Group_Counts) {
  FakeRoot root;
  root.Write("/proc/meminfo", kMemInfo);
  root.Write("/proc/self/cgroup", "0::/job/node\n");
  root.Write("/sys/fs/cgroup/job/node/memory.max", "max\n");
  root.Write("/sys/fs/cgroup/job/node/memory.current", "5000\n");
  root.Write("/sys/fs/cgroup/job/memory.max", "200000\n");
  root.Write("/sys/fs/cgroup/job/memory.current", "90000\n");
  root.Write("/sys/fs/cgroup/job/memory.stat", "anon 50000\ninactive_file 30000\n");
  EXPECT_EQ(ReadMemory(root.path()), (MemoryUse{60000, 200000}));
}

TEST(MemorySensor, Version1Group_Counts) {
  FakeRoot root;
  root.Write("/proc/meminfo", kMemInfo);
  root.Write("/proc/self/cgroup", "4:memory:/job\n0::/\n");
  root.Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000\n");
  root.Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(ReadMemory(root.path()), (MemoryUse{1000, 300000}));
}

TEST(DiskSensor, RealText_CountsWholeDevicesOnce) {
  std::optional<DiskTraffic> traffic =
      ParseDiskStats(kDiskStats, [](const std::string& name) { return name == "nvme0n1"; });
  EXPECT_EQ(traffic, (DiskTraffic{3284538ull * 512, 2411528ull * 512}));
}

TEST(DiskSensor, BrokenText_IsNothing) {
  auto all = [](const std::string&) { return true; };
  EXPECT_FALSE(ParseDiskStats("", all));
  EXPECT_FALSE(ParseDiskStats("8 0 sda 1 2 x 4 5 6 y 8\n", all));
  EXPECT_FALSE(ParseDiskStats("8 0 sda 1 2 3\n", all));
}

TEST(DiskSensor, StackedAndPartialDevices_AreNoBaseDisks) {
  FakeRoot root;
  root.Write("/sys/block/sda/size", "1");
  std::filesystem::create_directories(root.path() + "/sys/block/sda/slaves");
  root.Write("/sys/block/dm-0/slaves/sda/x", "1");
  root.Write("/sys/block/loop0/size", "1");
  root.Write("/sys/block/cciss!c0d0/size", "1");
  EXPECT_TRUE(IsBaseDisk(root.path(), "sda"));
  EXPECT_TRUE(IsBaseDisk(root.path(), "cciss/c0d0"));
  EXPECT_FALSE(IsBaseDisk(root.path(), "sda1"));
  EXPECT_FALSE(IsBaseDisk(root.path(), "dm-0"));
  EXPECT_FALSE(IsBaseDisk(root.path(), "loop0"));
}

TEST(DiskSensor, Space_OfADirectory) {
  std::optional<DiskSpace> space = ReadDiskSpace("/");
  ASSERT_TRUE(space);
  EXPECT_GT(space->total, 0u);
  EXPECT_LE(space->used, space->total);
  EXPECT_FALSE(ReadDiskSpace("/no/such/directory"));
}

TEST(NetworkSensor, RealText_OfTheNamedInterface) {
  EXPECT_EQ(ParseNetDev(kNetDev, "eth0"), (NetTraffic{70131616, 57182}));
  EXPECT_EQ(ParseNetDev(kNetDev, "eth0:1"), (NetTraffic{5, 6}));
  EXPECT_EQ(ParseNetDev(kNetDev, "lo"), (NetTraffic{100, 100}));
  EXPECT_EQ(ParseNetDev(kNetDev, ""), (NetTraffic{70131621, 57188}));
  EXPECT_FALSE(ParseNetDev(kNetDev, "eth1"));
}

TEST(NetworkSensor, BrokenText_IsNothing) {
  EXPECT_FALSE(ParseNetDev("", "eth0"));
  EXPECT_FALSE(ParseNetDev("eth0: 1 2 3\n", "eth0"));
  EXPECT_FALSE(ParseNetDev("eth0: x 2 3 4 5 6 7 8 9 10\n", "eth0"));
  EXPECT_FALSE(ParseNetDev("::::\n", ""));
}

TEST(PerSecond, Counters_BecomeRates) {
  EXPECT_EQ(PerSecond(100, 300, 500'000'000), 400u);
  EXPECT_EQ(PerSecond(300, 100, 500'000'000), 0u);  // reset
  EXPECT_EQ(PerSecond(100, 300, 0), 0u);
  EXPECT_EQ(PerSecond(0, UINT64_MAX, 1), UINT64_MAX);
}

TEST(NodeSensor, TwoReadings_GiveRatesBetweenThem) {
  FakeRoot root;
  root.Write("/proc/stat", "cpu 100 0 0 100 0 0 0 0 0 0\n");
  root.Write("/proc/meminfo", kMemInfo);
  root.Write("/proc/diskstats", "8 0 sda 1 0 10 0 1 0 20 0 0 0 0\n");
  root.Write("/sys/block/sda/size", "1");
  root.Write("/proc/net/dev", "eth0: 1000 0 0 0 0 0 0 0 2000 0 0 0 0 0 0 0\n");
  NodeSensor sensor("/", "eth0", root.path());
  Usage first = sensor.ReadAt(1'000'000'000);
  EXPECT_EQ(first.cpu_permille, 0u);
  EXPECT_EQ(first.memory_total, 1000u * 1024);
  EXPECT_GT(first.disk_total, 0u);
  EXPECT_EQ(first.net_sent_per_s, 0u);
  root.Write("/proc/stat", "cpu 175 0 0 125 0 0 0 0 0 0\n");
  root.Write("/proc/diskstats", "8 0 sda 1 0 12 0 1 0 24 0 0 0 0\n");
  root.Write("/proc/net/dev", "eth0: 3000 0 0 0 0 0 0 0 2500 0 0 0 0 0 0 0\n");
  Usage second = sensor.ReadAt(3'000'000'000);
  EXPECT_EQ(second.when_ns, 3'000'000'000);
  EXPECT_EQ(second.cpu_permille, 750u);
  EXPECT_EQ(second.disk_read_per_s, 512u);
  EXPECT_EQ(second.disk_written_per_s, 1024u);
  EXPECT_EQ(second.net_received_per_s, 1000u);
  EXPECT_EQ(second.net_sent_per_s, 250u);
  std::filesystem::remove(root.path() + "/proc/net/dev");  // the interface goes away
  EXPECT_EQ(sensor.ReadAt(4'000'000'000).net_received_per_s, 0u);
}

TEST(NodeSensor, ThisMachine_CanBeRead) {
  NodeSensor sensor("/tmp", "lo");
  Usage usage = sensor.Read();
  EXPECT_GT(usage.when_ns, 0);
  EXPECT_GT(usage.memory_total, 0u);
  EXPECT_LE(usage.memory_used, usage.memory_total);
}

}  // namespace
}  // namespace locum
