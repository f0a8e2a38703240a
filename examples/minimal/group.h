// The communication of the minimal example: rank 0 takes every rank's numbers, adds them in the order of the ranks
// and sends the sum to all, over TCP. So the bits do not depend on who is quick. Addresses are exchanged through the
// job's store.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "locum/locum.hpp"

class Group {
 public:
  // `patient`: waits in plain system calls, without looking whether it was aborted.
  explicit Group(bool patient) : patient_(patient) {}
  ~Group() { Close(); }
  // False: a recovery came in between, or a peer did not answer.
  bool Connect(locum::Job& job, const locum::TrainStep& step);
  // Sums `values` over all ranks. False: a connection broke. `inside` is called when something has been exchanged, and
  // something has not.
  bool AllReduce(std::vector<double>& values, const std::function<void()>& inside);
  // Makes a running AllReduce fail; any thread.
  void Abort();

 private:
  void Close();
  bool Send(int fd, const void* data, size_t bytes);
  bool Receive(int fd, void* data, size_t bytes);
  bool Listen(const std::string& host, int* listener, std::string* address);

  const bool patient_;
  bool root_ = true;          // rank 0
  std::vector<int> sockets_;  // rank 0: one for each other rank, by rank; others: one to rank 0
  std::atomic<bool> aborted_{false};
};
