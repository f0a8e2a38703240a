#include "adapters/grpc/agent_stream.h"

#include <chrono>

namespace locum {
namespace {
constexpr auto kHelloDeadline = std::chrono::seconds(10);
}

void AgentStream::Begin() {
  self_ = shared_from_this();
  // The alarm keeps its callback for as long as it lives, and is part of the stream: a strong pointer would be a circle.
  hello_deadline_.Set(std::chrono::system_clock::now() + kHelloDeadline, [weak = weak_from_this()](bool passed) {
    auto self = weak.lock();
    if (passed && self) self->Close({::grpc::StatusCode::DEADLINE_EXCEEDED, "no hello within 10 s"});
  });
  ReadNext();
}

void AgentStream::ReadNext() {
  std::lock_guard lock(mutex_);
  if (!finished_) StartRead(&in_);
}

void AgentStream::OnReadDone(bool ok) {
  if (!ok) return Close(::grpc::Status::OK);
  Handle();
}

bool AgentStream::Post(Event event) {
  if (post_(std::move(event), [self = shared_from_this()] { self->ReadNext(); })) return true;
  Close({::grpc::StatusCode::UNAVAILABLE, "the coordinator is closing"});
  return false;
}

void AgentStream::Handle() {
  auto reject = [&](const std::string& why) {
    {
      std::lock_guard lock(mutex_);
      lost_reason_ = "bad message: " + why;
    }
    Close({::grpc::StatusCode::INVALID_ARGUMENT, why});
  };
  bool connected;
  {
    std::lock_guard lock(mutex_);
    connected = connected_;
  }
  if (in_.message_case() == wire::FromAgent::kHello) {
    if (connected) return reject("a second hello");
    auto hello = FromWire(in_.hello());
    if (!hello.ok()) return reject(hello.status().message());
    hello_deadline_.Cancel();
    {
      std::lock_guard lock(mutex_);
      connected_ = true;
    }
    Post(NodeConnected{id_, std::move(*hello)});
    return;
  }
  if (!connected) return reject("the first message is not a hello");
  if (in_.message_case() == wire::FromAgent::kReady) {
    auto ready = FromWire(in_.ready());
    if (!ready.ok()) return reject(ready.status().message());
    Post(WorkerReady{id_, ready->slot, ready->worker, std::move(ready->info)});
  } else if (in_.message_case() == wire::FromAgent::kReport) {
    auto report = FromWire(in_.report());
    if (!report.ok()) return reject(report.status().message());
    Post(NodeReported{id_, std::move(*report)});
  } else {
    reject("an unknown message");
  }
}

void AgentStream::SendWelcome(const Welcome& welcome) {
  std::lock_guard lock(mutex_);
  *welcome_.emplace().mutable_welcome() = ToWire(welcome);
  WriteNextLocked();
}

void AgentStream::SendOrder(const NodeOrder& order) {
  std::lock_guard lock(mutex_);
  *order_.emplace().mutable_order() = ToWire(order);
  WriteNextLocked();
}

void AgentStream::Refuse(const std::string& reason, bool end) {
  std::lock_guard lock(mutex_);
  wire::Refusal* refusal = refused_.emplace().mutable_refused();
  refusal->set_reason(Clean(reason));
  refusal->set_end(end);
  if (!close_) close_ = ::grpc::Status::OK;
  WriteNextLocked();
}

void AgentStream::Close(::grpc::Status status) {
  std::lock_guard lock(mutex_);
  if (!close_) close_ = std::move(status);
  WriteNextLocked();
}

void AgentStream::WriteNextLocked() {
  if (writing_ || finished_) return;
  for (std::optional<wire::ToAgent>* next : {&welcome_, &order_, &refused_}) {
    if (!*next) continue;
    out_ = std::move(**next);
    next->reset();
    writing_ = true;
    StartWrite(&out_);
    return;
  }
  if (close_) {
    finished_ = true;
    Finish(*close_);
  }
}

void AgentStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  if (!ok) {
    welcome_.reset(), order_.reset(), refused_.reset();
    if (!close_) close_ = ::grpc::Status::CANCELLED;
  }
  WriteNextLocked();
}

void AgentStream::OnDone() {
  hello_deadline_.Cancel();
  // Counted until the core knows, so that the streams' limit also limits the events that wait.
  std::shared_ptr<AgentStream> self = std::move(self_);
  if (!connected_ || !post_(NodeLost{id_, lost_reason_}, [self] { self->gone_(self->id_); })) gone_(id_);
}

}  // namespace locum
