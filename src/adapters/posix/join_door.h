// Where workers join: the listening socket of a node, and the connections that have not said who they are yet.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "adapters/posix/event_poll.h"
#include "adapters/posix/owned_fd.h"
#include "adapters/posix/seqpacket.h"
#include "base/status.h"
#include "base/supervision.h"

namespace locum {

class JoinDoor {
 public:
  // A connection that has spoken, and who is behind it by the kernel's word.
  struct Caller {
    OwnedFd connection;
    OwnedFd process;  // a pidfd
  };

  JoinDoor(EventPoll* poll, std::function<void(JoinAsked)> asked);
  ~JoinDoor();

  // Makes `path`, replacing what an ended keeper has left there; removed again by Close.
  Status Open(const std::string& path);
  // Stops listening and removes the socket; whoever waits goes on waiting.
  void Shut();
  void Close();
  // The caller of an earlier JoinAsked; its connection is not valid when it has gone meanwhile.
  Caller Take(uint64_t connection);
  // Ends connections that stay silent. Returns when to call it again.
  Time Sweep(Time now);

 private:
  struct Waiting {
    Caller caller;
    Time deadline;
    EventPoll::Watch watch;
  };
  void Accept();
  void Hear(uint64_t id);

  EventPoll* poll_;
  std::function<void(JoinAsked)> asked_;
  PacketReceiver receiver_;
  std::string path_;
  OwnedFd listener_;
  EventPoll::Watch watch_;
  std::map<uint64_t, Waiting> waiting_;
  uint64_t next_id_ = 1;
};

}  // namespace locum
