#include "adapters/posix/seqpacket.h"

#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "adapters/posix/mapping.h"

namespace locum {
namespace {

struct Pair {
  Pair() {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) abort();
    a = OwnedFd(fds[0]);
    b = OwnedFd(fds[1]);
  }
  OwnedFd a, b;
};

TEST(Seqpacket, Packets_KeepTheirBorders) {
  Pair pair;
  PacketReceiver receiver(100);
  ASSERT_TRUE(*SendPacket(pair.a.get(), "one"));
  ASSERT_TRUE(*SendPacket(pair.a.get(), "second"));
  EXPECT_EQ((*receiver.Receive(pair.b.get()))->bytes, "one");
  EXPECT_EQ((*receiver.Receive(pair.b.get()))->bytes, "second");
  EXPECT_FALSE((*receiver.Receive(pair.b.get())).has_value());
}

TEST(Seqpacket, Descriptors_AreTheSameMemoryAndCloseOnExec) {
  Pair pair;
  OwnedFd memory = MakeSharedMemory("x", 4096).value();
  Mapping here = Mapping::Shared(memory.get(), 0, 4096).value();
  here.data()[5] = 77;
  ASSERT_TRUE(*SendPacket(pair.a.get(), "x", {memory.get()}));
  PacketReceiver receiver(100);
  Packet packet = std::move(*receiver.Receive(pair.b.get()).value());
  ASSERT_EQ(packet.descriptors.size(), 1u);
  EXPECT_TRUE(::fcntl(packet.descriptors[0].get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_EQ(Mapping::Shared(packet.descriptors[0].get(), 0, 4096).value().data()[5], 77);
}

TEST(Seqpacket, TooLargePacket_IsInvalid) {
  Pair pair;
  PacketReceiver receiver(10);
  ASSERT_TRUE(*SendPacket(pair.a.get(), "12345678901"));
  EXPECT_EQ(receiver.Receive(pair.b.get()).status().code(), Code::kInvalid);
}

TEST(Seqpacket, PeerGone_IsUnavailable) {
  Pair pair;
  pair.a.Reset();
  PacketReceiver receiver(10);
  EXPECT_EQ(receiver.Receive(pair.b.get()).status().code(), Code::kUnavailable);
  EXPECT_EQ(SendPacket(pair.b.get(), "x").status().code(), Code::kUnavailable);
}

TEST(Seqpacket, FullQueue_IsToldWithoutBlocking) {
  Pair pair;
  bool full = false;
  for (int i = 0; i < 100'000 && !full; ++i) full = !*SendPacket(pair.a.get(), std::string(1000, 'x'));
  EXPECT_TRUE(full);
}

TEST(Seqpacket, ExistingPath_IsRefused) {
  char name[] = "/tmp/locum_seqpacket_XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string path = std::string(name) + "/s";
  {
    Result<OwnedFd> first = ListenSeqpacket(path, 1);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(ListenSeqpacket(path, 1).status().code(), Code::kInvalid);
  }
  ::unlink(path.c_str());
  ::rmdir(name);
}

TEST(Mapping, MoreMemoryThanThereIs_IsUnavailable) {
  EXPECT_EQ(Mapping::Private(size_t{1} << 60).status().code(), Code::kUnavailable);
  EXPECT_TRUE(Mapping::Private(0).ok());
}

}  // namespace
}  // namespace locum
