#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "adapters/tcp/tcp_socket.h"

namespace locum {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Pair {
  Pair() {
    listener = TcpListener::Listen({"127.0.0.1", 0}, 4).value();
    a = TcpSocket::Connect(listener.address(), TcpNow() + seconds(10), nullptr).value();
    while (!b.valid()) b = listener.Accept().value();
  }
  TcpListener listener;
  TcpSocket a, b;
};

TEST(Address, Forms_AreParsedAndWritten) {
  EXPECT_EQ(*ParseAddress("127.0.0.1:80"), (HostPort{"127.0.0.1", 80}));
  EXPECT_EQ(*ParseAddress("[::1]:65535"), (HostPort{"::1", 65535}));
  EXPECT_EQ(FormatAddress({"::1", 7}), "[::1]:7");
  EXPECT_EQ(FormatAddress({"10.0.0.1", 7}), "10.0.0.1:7");
  for (const char* bad : {"", ":", "localhost:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:8x", "::1:80",
                          "[]:80", "127.0.0.1:-1", "[::1:80"}) {
    EXPECT_FALSE(ParseAddress(bad).ok()) << bad;
  }
}

TEST(Tcp, LargeTransfer_ArrivesWhole) {
  Pair pair;
  std::vector<uint8_t> sent(20 << 20), received(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 7 + (i >> 16));
  std::thread sending([&] {
    EXPECT_TRUE(pair.a.Send("head", 4, sent.data(), sent.size(), false, TcpNow() + seconds(30), nullptr).ok());
  });
  char head[4];
  EXPECT_TRUE(pair.b.Receive(head, 4, TcpNow() + seconds(30), nullptr).ok());
  EXPECT_EQ(std::string(head, 4), "head");
  EXPECT_TRUE(pair.b.Receive(received.data(), received.size(), TcpNow() + seconds(30), nullptr).ok());
  sending.join();
  EXPECT_EQ(sent, received);
}

TEST(Tcp, NothingComes_TimesOut) {
  Pair pair;
  char byte;
  EXPECT_EQ(pair.b.Receive(&byte, 1, TcpNow() + milliseconds(20), nullptr).code(), Code::kTimeout);
}

TEST(Tcp, PeerTakesNothing_SendTimesOut) {
  Pair pair;
  std::vector<uint8_t> data(64 << 20);
  EXPECT_EQ(pair.a.Send(nullptr, 0, data.data(), data.size(), false, TcpNow() + milliseconds(100), nullptr).code(),
            Code::kTimeout);
}

TEST(Tcp, Cancel_EndsAWaitOfAnotherThread) {
  Pair pair;
  Cancel cancel;
  Status status;
  std::thread waiting([&] {
    char byte;
    status = pair.b.Receive(&byte, 1, TcpNow() + seconds(60), &cancel);
  });
  cancel.Set();
  waiting.join();
  EXPECT_EQ(status.code(), Code::kInterrupted);
}

TEST(Tcp, PeerCloses_IsUnavailable) {
  Pair pair;
  pair.a.Close();
  char byte;
  EXPECT_EQ(pair.b.Receive(&byte, 1, TcpNow() + seconds(10), nullptr).code(), Code::kUnavailable);
}

TEST(Tcp, NobodyListens_IsUnavailable) {
  HostPort address;
  { address = TcpListener::Listen({"127.0.0.1", 0}, 1)->address(); }
  EXPECT_EQ(TcpSocket::Connect(address, TcpNow() + seconds(5), nullptr).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace locum
