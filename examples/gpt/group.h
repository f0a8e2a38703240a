// The data-parallel group: Gloo over TCP, on a thread that can be abandoned.
//
// A collective that lost a peer does not always notice, so nothing that the trainer waits for may depend on
// Gloo giving up. Each group lives in a `Lane`: a thread, a Gloo context, and the buffers in work, held together
// by shared ownership. The trainer hands work to the lane and waits for its end or for Abort, whichever comes
// first. An aborted lane is left behind: its connections are closed, its thread ends when Gloo lets go of it (at
// the latest when Gloo's own time-outs pass), and the last owner frees the rest. The buffers handed in are never
// state of the training.
//
// The sum is formed around a ring in an order given by the rank numbers and the element count alone, so a group that
// was built anew gives the same bits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace gloo::rendezvous {
class Store;
}

namespace gpt {

struct GroupOptions {
  std::string address = "127.0.0.1";  // numeric; the group listens on it
  std::chrono::milliseconds connect_timeout{20'000};
  std::chrono::milliseconds collective_timeout{60'000};  // how long a rank waits for the slowest one
};

// What all ranks must hold alike when they begin together; compared in the group's first collective.
struct Agreed {
  uint64_t generation = 0;
  uint64_t step = 0;
  uint64_t state_hash = 0;
};

// One thread, the trainer's, calls everything but Abort.
class Group {
 public:
  explicit Group(GroupOptions options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Builds the group anew, through `store`, which must be empty of earlier groups' keys. When it returns true every
  // rank has all its connections, and all agree on `size` and `agreed`. Returns false with the reason
  // in `why` after a failure or an abort. `store` may be used until then, also after an abort.
  bool Connect(std::shared_ptr<gloo::rendezvous::Store> store, int rank, int size, const Agreed& agreed,
               std::string* why);

  // Adds up `values` over all ranks, in place. After false the group is gone, and `values` belongs to the abandoned
  // thread until it drops its reference: whoever wants to use them again checks that he is the only owner.
  bool AllReduceSum(std::shared_ptr<float> values, size_t count, std::string* why);

  // Makes what runs now fail at once, and all that follows until Rearm. Any thread, any moment; never blocks.
  void Abort() noexcept;

  // From here on an abort is meant for what comes next. To be called when a step has ended.
  void Rearm();

 private:
  struct Lane;
  static void Serve(const std::shared_ptr<Lane>& lane) noexcept;
  static void ConnectLane(Lane& lane, const std::shared_ptr<gloo::rendezvous::Store>& store, int rank, int size,
                          const Agreed& agreed);
  template <class Work>
  bool Run(Work work, std::chrono::milliseconds limit, std::string* why);
  void DropLane(bool wait_if_idle);

  const GroupOptions options_;
  std::mutex mutex_;  // guards lane_ and aborted_ against Abort
  std::shared_ptr<Lane> lane_;
  bool aborted_ = false;
  std::thread thread_;  // of lane_
};

}  // namespace gpt
