// The communication of the minimal example: rank 0 takes every rank's numbers, adds them in the order of the ranks
// and sends the sum to all, over TCP. So the bits do not depend on who is quick. Addresses are exchanged through the
// job's store.
#pragma once

#include <atomic>
#include <vector>

#include "locum/locum.hpp"

class Group {
 public:
  ~Group() { Close(); }
  // False: a recovery came in between, or a peer did not answer.
  bool Connect(locum::Job& job, const locum::TrainStep& step);
  // Sums `values` over all ranks. False: a connection broke.
  bool AllReduce(std::vector<double>& values);
  // Makes a running AllReduce fail; any thread.
  void Abort();

 private:
  void Close();
  bool Listen(const std::string& host, int* listener, std::string* address);

  bool root_ = true;          // rank 0
  std::vector<int> sockets_;  // rank 0: one for each other rank, by rank; others: one to rank 0
  std::atomic<bool> aborted_{false};
};
