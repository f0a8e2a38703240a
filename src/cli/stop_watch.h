// Waits, on a thread of its own, for what should end a daemon: SIGINT, SIGTERM, SIGHUP, or the end of the process that
// started it. Make it while there is one thread, so that every later thread has these signals blocked.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace locum {

class StopWatch {
 public:
  // `parent_pidfd` may be -1. `stop` is called once, from the watch's thread, with the reason and the exit status it
  // means. A second signal ends the process at once.
  StopWatch(int parent_pidfd, std::function<void(const std::string& reason, int status)> stop);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  void Watch();
  int parent_, signals_, end_;
  std::function<void(const std::string&, int)> stop_;
  std::thread thread_;
};

// Blocks the signals that a StopWatch waits for.
void BlockStopSignals();

}  // namespace locum
