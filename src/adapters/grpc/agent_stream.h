// One agent's stream as the coordinator holds it.
//
// Invariants: one event of a stream is on its way to the core at a time; the next message is read when that one was
// taken, so a slow coordinator slows its agents instead of growing a queue. Of orders that could not be written yet
// only the newest is kept: each is the whole desired state. NodeLost follows every NodeConnected, last.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "adapters/grpc/convert.h"
#include "locum.pb.h"

namespace locum {

// Hands an event to the core; `taken` is called once, when the core has seen it or never will. False: the coordinator is closing,
// and `taken` is not called.
using PostEvent = std::function<bool(Event event, std::function<void()> taken)>;

class AgentStream final : public ::grpc::ServerBidiReactor<wire::FromAgent, wire::ToAgent>,
                          public std::enable_shared_from_this<AgentStream> {
 public:
  AgentStream(StreamId id, PostEvent post, std::function<void(StreamId)> gone)
      : id_(id), post_(std::move(post)), gone_(std::move(gone)) {}

  // Takes hold of itself until gRPC is done with it.
  void Begin();
  // Any thread.
  void SendWelcome(const Welcome& welcome);
  void SendOrder(const NodeOrder& order);
  void Refuse(const std::string& reason, bool end);  // says why, then ends the stream
  void Close(::grpc::Status status);                 // ends the stream when what is being written is out

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { Close(::grpc::Status::CANCELLED); }
  void OnDone() override;

 private:
  void ReadNext();
  void Handle();
  bool Post(Event event);
  void WriteNextLocked();

  const StreamId id_;
  const PostEvent post_;
  const std::function<void(StreamId)> gone_;
  std::shared_ptr<AgentStream> self_;
  ::grpc::Alarm hello_deadline_;
  wire::FromAgent in_;

  std::mutex mutex_;
  bool connected_ = false;  // the core was told
  bool writing_ = false;
  bool finished_ = false;
  std::optional<wire::ToAgent> welcome_, order_, refused_;
  std::optional<::grpc::Status> close_;
  wire::ToAgent out_;
  std::string lost_reason_ = "stream closed";
};

}  // namespace locum
