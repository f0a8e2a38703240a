// `locum run` once its directory is ready: starts the coordinator and the nodes, shows what happens, starts again what
// died, and ends everything in the right order. One thread, one loop; only the view is fetched by another thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/children.h"
#include "cli/commands.h"
#include "cli/display.h"
#include "cli/event_text.h"
#include "cli/rank_output.h"
#include "cli/view_poll.h"

namespace locum {

class LocalRun {
 public:
  // `dir` is absolute and may be used; `token` lies in it. `lock_fd` is its lock, which the caller holds. `started` is
  // called once, when the coordinator listens.
  LocalRun(const RunArgs& args, std::string dir, std::string job, std::string token, int lock_fd,
           std::function<Status()> started);
  ~LocalRun();
  // The exit status of `run`.
  int Main();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase {
    kStarting,  // the coordinator has not said its address
    kUp,
    kLeaving,        // the job has ended; the nodes end by the coordinator's order
    kStopping,       // SIGTERM was sent to the coordinator
    kStoppingNodes,  // the coordinator is gone; SIGTERM was sent to the keepers
    kHurrying,       // keepers are told to kill their workers at once
    kKilling,        // SIGKILL was sent to everything
    kOver,
  };
  struct Node {
    std::string name, dir;
    pid_t pid = 0;
    uint32_t restarts = 0;
    std::chrono::nanoseconds delay{};
    Clock::time_point started_at{}, start_at = Clock::time_point::max();
  };

  bool StartCoordinator(int port);
  void KeepToken();
  void StartNode(Node* node);
  void AwaitAddress();
  Status StartAll();
  void OnSignal(int signal);
  void OnEnded(pid_t pid, int status);
  void OnCoordinatorEnded(int status);
  void RestartCoordinator();
  std::string WhyNotStarted(int status) const;
  void OnNodeEnded(Node* node, int status);
  void EnterPhase(Phase phase, std::chrono::nanoseconds limit);
  void Advance();
  void StopNodes();
  void Show();
  void ShowEvents();
  void ShowView(const ClusterView& view);
  void ShowEnd();
  void Clean();
  bool AnyNode() const;
  void Tail(const std::string& path, const std::string& what);

  const RunArgs args_;
  const std::string dir_, job_, token_;
  const int lock_fd_;
  const std::function<Status()> started_;
  Children children_;
  Display display_;
  RankOutput output_;
  std::unique_ptr<ViewPoll> poll_;
  int signals_ = -1;

  Phase phase_ = Phase::kStarting;
  Clock::time_point deadline_{};
  pid_t coordinator_ = 0;
  uint32_t coordinator_restarts_ = 0;  // in quick succession
  Clock::time_point coordinator_started_at_{}, coordinator_start_at_ = Clock::time_point::max();
  std::string coordinator_trouble_, store_alarm_;
  std::string address_;
  std::vector<Node> nodes_;
  uint64_t events_at_ = 0;
  std::optional<int> told_end_;  // the job's exit status, once an event has said how it ended
  EventTeller teller_;
  int status_ = 0;
};

}  // namespace locum
