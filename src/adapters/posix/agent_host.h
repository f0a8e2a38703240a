// The agent's operating system. See ports/agent_host.h.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/posix/event_poll.h"
#include "adapters/posix/mapping.h"
#include "adapters/posix/owned_fd.h"
#include "adapters/posix/seqpacket.h"
#include "ports/agent_host.h"
#include "ports/page.h"

namespace locum {

class PosixAgentHost : public AgentHost {
 public:
  // `keeper_fd` is the channel that the keeper gave; it becomes this object's.
  static Result<std::unique_ptr<PosixAgentHost>> Create(int keeper_fd);

  Time Now() override;
  uint64_t Draw() override;
  std::vector<AgentHostEvent> Wait(Time until) override;
  void Wake() override;
  Status Send(const StartWorker& start) override { return ToKeeper(EncodeStart(start)); }
  Status Send(const StopWorker& stop) override { return ToKeeper(EncodeStop(stop)); }
  Status Send(const ForgetWorker& forget) override { return ToKeeper(EncodeForget(forget.worker)); }
  Status Send(const ShutdownNode& shutdown) override { return ToKeeper(EncodeShutdown(shutdown)); }
  Status Send(const RememberNotes& notes) override { return ToKeeper(EncodeRemember(notes.notes)); }
  void Relay(Incarnation worker, const WorkerOrder& order) override;
  void Abort(Incarnation worker, Generation generation) override;
  void AskAgain(Incarnation worker) override;
  std::vector<PageReading> ReadPages() override;
  PageReading StoreStop(Incarnation worker, Step stop_at) override;
  void SaveStacks(Incarnation worker, int32_t pid, const std::string& path) override;
  uint64_t FileBytes(const std::string& path) override;
  void Log(const std::string& name, const std::string& text) override;

 private:
  struct Link {
    OwnedFd connection;
    Mapping mapping;
    EventPoll::Watch watch;
    // What waits until the worker reads, at most one of each kind: every message is a whole state.
    std::optional<std::string> resend, order, abort;
    Page* page() const { return reinterpret_cast<Page*>(mapping.data()); }
  };

  PosixAgentHost() : keeper_receiver_(kMaxKeeperMessage), worker_receiver_(kMaxWorkerMessage) {}
  Status Open(int keeper_fd);
  Status ToKeeper(std::string packet);
  void FlushKeeper();
  void HearKeeper();
  void TakeRecord(WorkerRecord record, std::vector<OwnedFd> descriptors);
  Status Adopt(Incarnation worker, std::vector<OwnedFd> descriptors);
  void HearWorker(Incarnation worker);
  Status Deliver(Incarnation worker, const std::string& packet);
  void FlushWorker(Incarnation worker, Link* link);
  void Close(Incarnation worker);
  void Lose(Incarnation worker, const std::string& why);
  Link* Find(Incarnation worker);
  static PageReading ReadPage(Incarnation worker, const Page& page);

  std::vector<AgentHostEvent> events_;
  PacketReceiver keeper_receiver_;
  PacketReceiver worker_receiver_;
  OwnedFd keeper_;
  OwnedFd wake_;
  std::deque<std::string> to_keeper_;
  EventPoll poll_;
  EventPoll::Watch keeper_watch_;
  EventPoll::Watch wake_watch_;
  std::map<Incarnation, Link> links_;
  struct Writer {  // of stacks: a process, since looking at one that hangs may hang
    pid_t pid = 0;
    OwnedFd end;
    EventPoll::Watch watch;
  };
  std::map<Incarnation, Writer> writers_;
};

}  // namespace locum
