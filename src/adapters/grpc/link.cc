#include "adapters/grpc/link.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "adapters/grpc/channel.h"
#include "adapters/grpc/convert.h"
#include "locum.grpc.pb.h"

namespace locum {
namespace {

constexpr auto kFirstPause = std::chrono::milliseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);
constexpr auto kFlushDeadline = std::chrono::milliseconds(500);
constexpr auto kWelcomeDeadline = std::chrono::seconds(10);

// One connection, from the call to its end. gRPC keeps a hold on it until OnDone; its owner waits for Done before
// letting it go.
class Attempt final : public ::grpc::ClientBidiReactor<wire::FromAgent, wire::ToAgent> {
 public:
  Attempt(const LinkOptions& options, const NodeHello& hello, std::function<void(LinkEvent)> deliver)
      : options_(options),
        deliver_(std::move(deliver)),
        channel_(MakeChannel(options.address)),
        stub_(wire::Control::NewStub(channel_)) {
    context_.AddMetadata(kTokenMetadata, options.token);
    *hello_.emplace().mutable_hello() = ToWire(hello);
    stub_->async()->Agent(&context_, this);
    AddHold();  // writes come from outside; released when reading has ended
    StartRead(&in_);
    {
      std::lock_guard lock(mutex_);
      WriteNextLocked();
    }
    StartCall();
  }

  void SendReady(Slot slot, Incarnation worker, const JoinInfo& info) {
    std::lock_guard lock(mutex_);
    if (!up_ || closed_) return;
    *ready_[slot].mutable_ready() = ToWire(slot, worker, info);
    WriteNextLocked();
  }

  void SendReport(const NodeReport& report) {
    std::lock_guard lock(mutex_);
    if (!up_ || closed_) return;
    *report_.emplace().mutable_report() = ToWire(report);
    WriteNextLocked();
  }

  // Writes what waits, then says that nothing more comes; the coordinator answers by ending the stream.
  void Flush() {
    std::lock_guard lock(mutex_);
    flush_ = true;
    WriteNextLocked();
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        std::lock_guard lock(mutex_);
        closed_ = true;
      }
      RemoveHold();
      return;
    }
    Status bad;
    if (in_.message_case() == wire::ToAgent::kWelcome) {
      auto welcome = FromWire(in_.welcome());
      bad = welcome.status();
      if (welcome.ok()) {
        {
          std::lock_guard lock(mutex_);
          up_ = true;
        }
        changed_.notify_all();
        deliver_(LinkUp{std::move(*welcome)});
      }
    } else if (in_.message_case() == wire::ToAgent::kOrder) {
      auto order = FromWire(in_.order());
      bad = order.status();
      if (order.ok()) deliver_(LinkOrder{std::move(*order)});
    } else if (in_.message_case() == wire::ToAgent::kRefused) {
      std::lock_guard lock(mutex_);
      refused_ = LinkRefused{Clean(in_.refused().reason()), in_.refused().end()};
    }
    if (!bad.ok()) {
      {
        std::lock_guard lock(mutex_);
        bad_ = "bad message from the coordinator: " + bad.message();
      }
      Cancel();
    }
    StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (ok) WriteNextLocked();
  }

  void OnDone(const ::grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
  }

  // Waits for the end of the connection; until then, for the welcome no longer than its deadline.
  void WaitDone() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kWelcomeDeadline, [&] { return up_ || done_; })) {
      bad_ = "no answer from the coordinator at " + options_.address;
      Cancel();
    }
    changed_.wait(lock, [&] { return done_; });
  }
  bool WaitDoneFor(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return done_; });
  }

  // After WaitDone.
  bool was_up() const { return up_; }
  bool told_end() const { return refused_ && refused_->end; }
  Status Outcome() const {
    if (refused_) return Refused(refused_->reason);
    if (!bad_.empty()) return Unavailable(bad_);
    Status status = FromGrpc(status_, options_.address);
    return status.ok() ? Unavailable("the coordinator closed the stream") : status;
  }

 private:
  void WriteNextLocked() {
    if (writing_ || closed_) return;
    if (hello_) {
      out_ = std::move(*hello_);
      hello_.reset();
    } else if (!ready_.empty()) {
      out_ = std::move(ready_.begin()->second);
      ready_.erase(ready_.begin());
    } else if (report_) {
      out_ = std::move(*report_);
      report_.reset();
    } else {
      if (flush_ && !writes_done_) {
        writes_done_ = true;
        StartWritesDone();
      }
      return;
    }
    if (writes_done_) return;
    writing_ = true;
    StartWrite(&out_);
  }

  const LinkOptions options_;
  const std::function<void(LinkEvent)> deliver_;
  std::shared_ptr<::grpc::Channel> channel_;
  std::unique_ptr<wire::Control::Stub> stub_;
  ::grpc::ClientContext context_;
  wire::ToAgent in_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool up_ = false, writing_ = false, closed_ = false, done_ = false, flush_ = false, writes_done_ = false;
  std::optional<wire::FromAgent> hello_, report_;
  std::map<Slot, wire::FromAgent> ready_;
  wire::FromAgent out_;
  std::optional<LinkRefused> refused_;
  std::string bad_;
  ::grpc::Status status_;
};

class GrpcLink final : public CoordinatorLink {
 public:
  explicit GrpcLink(const LinkOptions& options) : options_(options) {}
  ~GrpcLink() override { Stop(); }

  void Start(const NodeHello& hello, std::function<void(LinkEvent)> deliver) override {
    LOCUM_CHECK(!thread_.joinable());
    hello_ = hello;
    thread_ = std::thread([this, deliver = std::move(deliver)] { Run(deliver); });
  }

  void UpdateHello(const NodeHello& hello) override {
    std::lock_guard lock(mutex_);
    hello_ = hello;
  }

  void ConnectAgain() override {
    if (auto attempt = Current()) attempt->Cancel();
  }

  void SendReady(Slot slot, Incarnation worker, const JoinInfo& info) override {
    if (auto attempt = Current()) attempt->SendReady(slot, worker, info);
  }

  void SendReport(const NodeReport& report) override {
    if (auto attempt = Current()) attempt->SendReport(report);
  }

  void Stop() override {
    std::shared_ptr<Attempt> attempt;
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      attempt = attempt_;
    }
    wake_.notify_all();
    if (attempt) {
      attempt->Flush();
      if (!attempt->WaitDoneFor(kFlushDeadline)) attempt->Cancel();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::shared_ptr<Attempt> Current() {
    std::lock_guard lock(mutex_);
    return attempt_;
  }

  void Run(const std::function<void(LinkEvent)>& deliver) {
    std::chrono::milliseconds pause = kFirstPause;
    std::string last_reason;
    while (true) {
      std::shared_ptr<Attempt> attempt;
      {
        std::lock_guard lock(mutex_);
        if (stop_) return;
        attempt = attempt_ = std::make_shared<Attempt>(options_, hello_, deliver);
      }
      attempt->WaitDone();
      bool was_up = attempt->was_up();
      Status outcome = attempt->Outcome();
      {
        std::lock_guard lock(mutex_);
        attempt_.reset();
        if (stop_) return;
      }
      const bool refused = outcome.code() == Code::kRefused;
      if (refused) {
        deliver(LinkRefused{outcome.message(), attempt->told_end()});
        pause = kLongestPause;
      } else if (was_up || outcome.message() != last_reason)
        deliver(LinkLost{outcome.message()});
      last_reason = outcome.message();
      if (was_up && !refused) pause = kFirstPause;
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, pause, [&] { return stop_; })) return;
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  const LinkOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  NodeHello hello_;
  std::shared_ptr<Attempt> attempt_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<CoordinatorLink> MakeGrpcLink(const LinkOptions& options) {
  return std::make_unique<GrpcLink>(options);
}

}  // namespace locum
