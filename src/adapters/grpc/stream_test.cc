// Server and link over real sockets of this machine, with a test in the place of the core.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>

#include "adapters/grpc/channel.h"
#include "adapters/grpc/client.h"
#include "adapters/grpc/link.h"
#include "adapters/grpc/server.h"
#include "locum.grpc.pb.h"

namespace locum {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
constexpr auto kLong = 20s;  // a deadline that only a broken program reaches

template <class T>
class Inbox {
 public:
  void Put(T item) {
    std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_all();
  }
  T Next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLong, [&] { return !items_.empty(); })) {
      ADD_FAILURE() << "nothing came";
      return T{};
    }
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  bool Empty() {
    std::lock_guard lock(mutex_);
    return items_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
};

Welcome MakeWelcome() {
  Welcome welcome;
  welcome.command = {"train"};
  return welcome;
}

struct Got {
  Event event = Tick{};
  std::function<void()> taken;
};

class Stream : public ::testing::Test {
 protected:
  void SetUp() override {
    QuietGrpc();
    ASSERT_NE(::mkdtemp(dir_.data()), nullptr);
    Listen(0);
  }
  void TearDown() override {
    if (server_) server_->Shutdown(0s);
    std::filesystem::remove_all(dir_);
  }
  void Listen(uint16_t port) {
    ServerHandlers handlers;
    handlers.post = [this](Event event, std::function<void()> taken) {
      events_.Put({std::move(event), std::move(taken)});
      return true;
    };
    handlers.view = [](const std::function<void(const ClusterView*)>& call) {
      ClusterView view;
      view.step = Step(12);
      call(&view);
      return true;
    };
    auto server = GrpcServer::Start({"127.0.0.1", port, "secret", dir_ + "/events.jsonl"}, std::move(handlers));
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }
  std::string Address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  static NodeHello Hello() {
    NodeHello hello;
    hello.name = "node-1";
    hello.keeper = Incarnation(1);
    hello.agent = Incarnation(2);
    return hello;
  }
  std::unique_ptr<CoordinatorLink> Link(const std::string& token = "secret") {
    auto link = MakeGrpcLink({Address(), token});
    link->Start(Hello(), [this](LinkEvent event) { link_events_.Put(std::move(event)); });
    return link;
  }
  // The next event of the core, released at once.
  template <class T>
  T NextEvent() {
    Got got = events_.Next();
    if (got.taken) got.taken();
    T* event = std::get_if<T>(&got.event);
    EXPECT_NE(event, nullptr) << "another kind of event: " << got.event.index();
    return event == nullptr ? T{} : *event;
  }
  template <class T>
  T NextLink() {
    LinkEvent event = link_events_.Next();
    T* wanted = std::get_if<T>(&event);
    EXPECT_NE(wanted, nullptr) << "another kind of link event: " << event.index();
    return wanted == nullptr ? T{} : *wanted;
  }

  std::string dir_ = "/tmp/locum-stream-XXXXXX";
  Inbox<Got> events_;
  Inbox<LinkEvent> link_events_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(Stream, HelloWelcomeReadyReportOrder_PassBothWays) {
  auto link = Link();
  auto connected = NextEvent<NodeConnected>();
  EXPECT_EQ(connected.hello.name, "node-1");
  Welcome welcome = MakeWelcome();
  welcome.job = "j1";
  server_->SendWelcome(connected.stream, welcome);
  EXPECT_EQ(NextLink<LinkUp>().welcome.job, "j1");
  JoinInfo info;
  info.library = "0.1.0";
  link->SendReady(Slot(0), Incarnation(5), info);
  auto ready = NextEvent<WorkerReady>();
  EXPECT_EQ(ready.info, info);
  EXPECT_EQ(ready.stream, connected.stream);
  NodeReport report;
  report.order = 17;
  link->SendReport(report);
  EXPECT_EQ(NextEvent<NodeReported>().report.order, 17u);
  NodeOrder order;
  order.sequence = 3;
  server_->SendOrder(connected.stream, order);
  EXPECT_EQ(NextLink<LinkOrder>().order.sequence, 3u);
  link->Stop();
  EXPECT_EQ(NextEvent<NodeLost>().stream, connected.stream);
}

TEST_F(Stream, WrongToken_IsRefused) {
  auto link = Link("guess");
  EXPECT_THAT(NextLink<LinkRefused>().reason, HasSubstr("refuses this token"));
  link->Stop();
  EXPECT_TRUE(events_.Empty());
  EXPECT_TRUE(link_events_.Empty());
  EXPECT_EQ(GrpcClient(Address(), "guess").View().status().code(), Code::kRefused);
  EXPECT_EQ(GrpcClient(Address(), "").Failback("node-1").code(), Code::kRefused);
  EXPECT_EQ(GrpcClient(Address(), "secretX").Events(0).status().code(), Code::kRefused);
}

TEST_F(Stream, RefusedNode_HearsTheReason) {
  auto link = Link();
  auto connected = NextEvent<NodeConnected>();
  server_->Refuse(connected.stream, "there is another node-1", false);
  auto first = NextLink<LinkRefused>();
  EXPECT_EQ(first.reason, "there is another node-1");
  EXPECT_FALSE(first.end);
  EXPECT_EQ(NextEvent<NodeLost>().stream, connected.stream);
  // Who is not stopped asks again.
  connected = NextEvent<NodeConnected>();
  server_->Refuse(connected.stream, "the job has ended", true);
  EXPECT_TRUE(NextLink<LinkRefused>().end);
}

TEST_F(Stream, CoordinatorRestarted_LinkComesBackWithItsNewestHello) {
  auto link = Link();
  auto connected = NextEvent<NodeConnected>();
  server_->SendWelcome(connected.stream, MakeWelcome());
  NextLink<LinkUp>();
  NodeHello next = Hello();
  next.term = Term(4);
  link->UpdateHello(next);
  uint16_t port = server_->port();
  server_->Shutdown(0s);
  EXPECT_EQ(NextEvent<NodeLost>().stream, connected.stream);
  NextLink<LinkLost>();
  Listen(port);
  EXPECT_EQ(NextEvent<NodeConnected>().hello.term, Term(4));
}

TEST_F(Stream, AskedToConnectAgain_LinkComesBackWithItsNewestHello) {
  auto link = Link();
  auto connected = NextEvent<NodeConnected>();
  server_->SendWelcome(connected.stream, MakeWelcome());
  NextLink<LinkUp>();
  NodeHello next = Hello();
  next.cluster = Incarnation(4);
  link->UpdateHello(next);
  link->ConnectAgain();
  EXPECT_EQ(NextEvent<NodeLost>().stream, connected.stream);
  NextLink<LinkLost>();
  EXPECT_EQ(NextEvent<NodeConnected>().hello.cluster, Incarnation(4));
}

TEST_F(Stream, CoreIsSlow_NewestReportReplacesTheOnesBefore) {
  auto link = Link();
  auto connected = NextEvent<NodeConnected>();
  server_->SendWelcome(connected.stream, MakeWelcome());
  NextLink<LinkUp>();
  link->SendReport(NodeReport{Term(1), 0, {}, {}});
  Got held = events_.Next();  // not taken: the stream reads nothing more
  // More than the sockets' buffers hold.
  NodeReport report;
  report.workers.resize(8);
  for (WorkerReport& worker : report.workers) worker.log = std::string(60000, 'x');
  constexpr uint64_t kReports = 200;
  for (report.order = 1; report.order <= kReports; ++report.order) link->SendReport(report);
  EXPECT_TRUE(events_.Empty());
  held.taken();
  uint64_t seen = 0, last = 0;
  while (last != kReports) {
    auto got = NextEvent<NodeReported>();
    ASSERT_GT(got.report.order, last);
    last = got.report.order;
    ++seen;
  }
  EXPECT_LT(seen, kReports);
}

TEST_F(Stream, BadMessages_EndTheStream) {
  auto channel = MakeChannel(Address());
  auto stub = wire::Control::NewStub(channel);
  auto talk = [&](const std::vector<wire::FromAgent>& messages) {
    ::grpc::ClientContext context;
    context.AddMetadata(kTokenMetadata, "secret");
    auto stream = stub->Agent(&context);
    for (const wire::FromAgent& message : messages) stream->Write(message);
    wire::ToAgent answer;
    while (stream->Read(&answer)) {
    }
    return stream->Finish();
  };
  wire::FromAgent report;
  report.mutable_report();
  EXPECT_THAT(talk({report}).error_message(), HasSubstr("the first message is not a hello"));
  EXPECT_THAT(talk({wire::FromAgent()}).error_message(), HasSubstr("the first message is not a hello"));
  wire::FromAgent hello;
  *hello.mutable_hello() = ToWire(Hello());
  hello.mutable_hello()->set_name("a/b");
  EXPECT_THAT(talk({hello}).error_message(), HasSubstr("hello.name"));
  EXPECT_TRUE(events_.Empty());
  hello.mutable_hello()->set_name("node-1");
  std::thread release([&] { NextEvent<NodeConnected>(); });
  EXPECT_THAT(talk({hello, hello}).error_message(), HasSubstr("a second hello"));
  release.join();
  EXPECT_THAT(NextEvent<NodeLost>().reason, HasSubstr("bad message"));
}

TEST_F(Stream, UnaryCalls_AreAnswered) {
  std::ofstream(dir_ + "/events.jsonl") << "{\"a\":1}\n{\"b\":2}\n{\"half";
  GrpcClient client(Address(), "secret");
  auto view = client.View();
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->step, Step(12));
  auto lines = client.Events(8);
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ(lines->text, "{\"b\":2}\n");
  EXPECT_EQ(lines->next_offset, 16u);
  EXPECT_EQ(client.Events(16)->text, "");

  auto answer = [&](Status status) {
    auto call = std::async(std::launch::async, [&] { return client.Failback("node-1"); });
    auto request = NextEvent<FailbackRequested>();
    EXPECT_EQ(request.node, "node-1");
    server_->Answer(request.request, status);
    return call.get();
  };
  EXPECT_TRUE(answer(OkStatus()).ok());
  Status refused = answer(Refused("node-1 holds its ranks already"));
  EXPECT_EQ(refused.code(), Code::kRefused);
  EXPECT_EQ(refused.message(), "node-1 holds its ranks already");
  EXPECT_EQ(client.Failback("no/node").code(), Code::kInvalid);
}

TEST_F(Stream, Shutdown_AnswersWhatWaits) {
  GrpcClient client(Address(), "secret");
  auto call = std::async(std::launch::async, [&] { return client.Failback("node-1"); });
  NextEvent<FailbackRequested>();
  server_->Shutdown(0s);
  EXPECT_EQ(call.get().code(), Code::kUnavailable);
}

TEST_F(Stream, PortInUse_IsAnError) {
  auto second = GrpcServer::Start({"127.0.0.1", server_->port(), "t", ""}, {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("the port is in use"));
}

TEST_F(Stream, NobodyListens_LinkSaysSoOnceAndStops) {
  auto link = MakeGrpcLink({"127.0.0.1:1", "secret"});
  link->Start(Hello(), [this](LinkEvent event) { link_events_.Put(std::move(event)); });
  EXPECT_THAT(NextLink<LinkLost>().reason, HasSubstr("cannot reach the coordinator at 127.0.0.1:1"));
  link->Stop();
}

// An order down and the report that answers it up. Printed, not judged: the machine decides.
TEST_F(Stream, OrderAndAnswer_TakeMicroseconds) {
  auto link = MakeGrpcLink({Address(), "secret"});
  CoordinatorLink* raw = link.get();
  link->Start(Hello(), [this, raw](LinkEvent event) {
    if (auto* order = std::get_if<LinkOrder>(&event)) {
      NodeReport report;
      report.order = order->order.sequence;
      report.workers.resize(1);
      raw->SendReport(report);
    } else {
      link_events_.Put(std::move(event));
    }
  });
  auto connected = NextEvent<NodeConnected>();
  server_->SendWelcome(connected.stream, MakeWelcome());
  NextLink<LinkUp>();
  std::vector<double> micros;
  NodeOrder order;
  order.workers.resize(1);
  for (order.sequence = 1; order.sequence <= 1000; ++order.sequence) {
    auto begin = std::chrono::steady_clock::now();
    server_->SendOrder(connected.stream, order);
    ASSERT_EQ(NextEvent<NodeReported>().report.order, order.sequence);
    micros.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(micros.begin(), micros.end());
  std::printf("order and answer: median %.0f us, p99 %.0f us\n", micros[500], micros[990]);
  link->Stop();
}

TEST(Token, Comparison_IsExact) {
  EXPECT_TRUE(SameToken("abc", "abc"));
  EXPECT_FALSE(SameToken("abc", "abd"));
  EXPECT_FALSE(SameToken("abc", "abcd"));
  EXPECT_FALSE(SameToken("abc", ""));
  EXPECT_FALSE(SameToken(std::string_view("abc\0", 4), "abc"));
}

}  // namespace
}  // namespace locum
