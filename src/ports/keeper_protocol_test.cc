#include "ports/keeper_protocol.h"

#include <gtest/gtest.h>

namespace locum {
namespace {

StartWorker SomeStart() {
  StartWorker start;
  start.slot = Slot(3);
  start.worker = Incarnation(0x1234);
  start.command = {"python3", "train.py", ""};
  start.log = "/dir/worker.log";
  start.grace = std::chrono::seconds(5);
  start.welcome = WorkerWelcome{"job", "node", Slot(3), Incarnation(0x1234), "token", "10.0.0.1", "/dir/w.steps", 7, 2};
  return start;
}

WorkerRecord SomeRecord() {
  WorkerRecord record;
  record.slot = Slot(1);
  record.worker = Incarnation(9);
  record.pid = 4711;
  record.stopping = true;
  record.stuck = true;
  record.ended = true;
  record.exit = WorkerExit{0, 9, true, "killed by SIGKILL", "tail"};
  record.log = "/log";
  record.step_log = "/steps";
  return record;
}

TEST(KeeperProtocol, Start_SurvivesTheWire) {
  StartWorker start = SomeStart();
  Result<StartWorker> back = DecodeStart(EncodeStart(start));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->slot, start.slot);
  EXPECT_EQ(back->worker, start.worker);
  EXPECT_EQ(back->command, start.command);
  EXPECT_EQ(back->log, start.log);
  EXPECT_EQ(back->grace, start.grace);
  EXPECT_EQ(back->welcome.token, "token");
  EXPECT_EQ(back->welcome.workers_per_node, 2u);
}

TEST(KeeperProtocol, Worker_SurvivesTheWire) {
  Result<WorkerRecord> back = DecodeWorker(EncodeWorker(SomeRecord()));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, SomeRecord());
}

TEST(KeeperProtocol, SmallMessages_SurviveTheWire) {
  Result<StopWorker> stop = DecodeStop(EncodeStop({Incarnation(5), std::chrono::seconds(2)}));
  ASSERT_TRUE(stop.ok());
  EXPECT_EQ(stop->worker, Incarnation(5));
  EXPECT_EQ(stop->grace, Duration(std::chrono::seconds(2)));
  EXPECT_EQ(DecodeForget(EncodeForget(Incarnation(6))).value(), Incarnation(6));
  EXPECT_EQ(DecodeRemember(EncodeRemember("notes")).value(), "notes");
  Result<ShutdownNode> shutdown = DecodeShutdown(EncodeShutdown({std::chrono::seconds(1), 1, "why"}));
  ASSERT_TRUE(shutdown.ok());
  EXPECT_EQ(shutdown->status, 1);
  EXPECT_EQ(shutdown->reason, "why");
  Result<KeeperHello> hello = DecodeKeeperHello(EncodeKeeperHello({Incarnation(1), 77, 2, {Incarnation(3)}, "n"}));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->keeper_pid, 77);
  EXPECT_EQ(hello->workers, std::vector<Incarnation>{Incarnation(3)});
  EXPECT_EQ(hello->notes, "n");
}

TEST(KeeperProtocol, EveryCutOrExtendedPacket_IsRejected) {
  auto reject = [](const std::string& packet, auto decode) {
    for (size_t size = 0; size < packet.size(); ++size) EXPECT_FALSE(decode(packet.substr(0, size)).ok()) << size;
    EXPECT_FALSE(decode(packet + "x").ok());
    EXPECT_TRUE(decode(packet).ok());
  };
  reject(EncodeStart(SomeStart()), DecodeStart);
  reject(EncodeStop({Incarnation(5), {}}), DecodeStop);
  reject(EncodeForget(Incarnation(5)), DecodeForget);
  reject(EncodeShutdown({{}, 0, "why"}), DecodeShutdown);
  reject(EncodeRemember("notes"), DecodeRemember);
  reject(EncodeKeeperHello({Incarnation(1), 77, 2, {Incarnation(3)}, "n"}), DecodeKeeperHello);
  reject(EncodeWorker(SomeRecord()), DecodeWorker);
}

TEST(KeeperProtocol, ValuesOutOfRange_AreRejected) {
  EXPECT_FALSE(DecodeStop(EncodeStop({Incarnation(0), {}})).ok());
  EXPECT_FALSE(DecodeStop(EncodeStop({Incarnation(1), Duration(-1)})).ok());
  EXPECT_FALSE(DecodeStop(EncodeStop({Incarnation(1), kMaxGrace + Duration(1)})).ok());
  EXPECT_FALSE(DecodeShutdown(EncodeShutdown({{}, 256, ""})).ok());
  EXPECT_FALSE(DecodeRemember(EncodeRemember(std::string(kMaxNotes + 1, 'x'))).ok());
  StartWorker start = SomeStart();
  start.command = {};
  EXPECT_FALSE(DecodeStart(EncodeStart(start)).ok());
  start.command = {""};
  EXPECT_FALSE(DecodeStart(EncodeStart(start)).ok());
  start.command = {std::string("a\0b", 3)};
  EXPECT_FALSE(DecodeStart(EncodeStart(start)).ok());
}

TEST(KeeperProtocol, EndOfNoProcess_IsRejected) {
  WorkerRecord record = SomeRecord();
  record.exit.signal = INT32_MAX;
  EXPECT_FALSE(DecodeWorker(EncodeWorker(record)).ok());
  record.exit.signal = 0;
  record.exit.status = -1;
  EXPECT_FALSE(DecodeWorker(EncodeWorker(record)).ok());
}

TEST(KeeperProtocol, WrongType_IsRejected) {
  EXPECT_FALSE(DecodeStart(EncodeForget(Incarnation(1))).ok());
  EXPECT_FALSE(KeeperTypeOf("").ok());
  EXPECT_FALSE(KeeperTypeOf("\x63").ok());
  EXPECT_EQ(KeeperTypeOf(EncodeForget(Incarnation(1))).value(), KeeperMessage::kForget);
}

}  // namespace
}  // namespace locum
