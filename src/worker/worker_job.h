// A joined worker: its threads, and the calls of the trainer's thread. The C functions are a thin skin over this.
// Not thread-safe but for StoreSet and StoreGet; the trainer's thread calls the rest.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "adapters/posix/owned_fd.h"
#include "adapters/posix/record_file.h"
#include "base/status.h"
#include "state/step_log.h"
#include "worker/breaker.h"
#include "worker/data_port.h"
#include "worker/group_connections.h"
#include "worker/mover.h"
#include "worker/node_link.h"
#include "worker/protocol.h"
#include "worker/store_client.h"

namespace locum {

struct JoinParameters {
  std::string socket;
  Incarnation worker;
  uint64_t total_steps = 0;
  std::string fingerprint;
  Duration timeout = std::chrono::seconds(10);
};

class WorkerJob {
 public:
  static Result<std::unique_ptr<WorkerJob>> Join(const JoinParameters& parameters);
  ~WorkerJob();

  Status RegisterMemory(const Shard& shard, void* data);
  Status RegisterCallbacks(const Shard& shard, locum_read_fn read, locum_write_fn write, void* context);
  Status SetAbort(locum_abort_fn abort, void* context);

  // 1: a step; 0: the last state is reached.
  Result<int> NextStep(locum_step* step);
  Status Connected();
  Status ReportLoss(double loss);
  Status EnterCollective();
  Status Broken(const std::string& why);
  Status BeginUpdate();
  Status EndUpdate();
  Status FailUpdate(const std::string& why);
  Status StopHere();
  Status Finish();

  Status StoreSet(const std::string& key, const std::string& value);
  Result<std::string> StoreGet(const std::string& key, Duration timeout);

  const WorkerWelcome& welcome() const { return joined_.welcome; }

 private:
  WorkerJob() = default;
  Status Prepare(const JoinParameters& parameters);
  Status MakeStepLog();
  Status BecomeReady();
  void DescribeStep(locum_step* step) const;
  void StartStep(locum_step* step);
  StepRecord* NewRecord(uint32_t kind, Step step, int64_t now_ns);
  void RecordPulled();
  void SetPosition(Position position, int64_t now_ns);
  std::optional<Duration> Housekeeping();
  Status StoreFailed(const RunInfo& run, const Status& why);

  Joined joined_;
  Page* page_ = nullptr;
  OwnedFd wake_;
  uint64_t total_steps_ = 0;
  std::string fingerprint_;
  std::unique_ptr<RecordFile> step_log_;
  std::atomic<bool> grow_step_log_{false};      // asked for
  std::atomic<int64_t> grow_not_before_ns_{0};  // on a full disk, once a second
  RegisteredState state_;
  std::unique_ptr<Protocol> protocol_;
  std::unique_ptr<Mover> mover_;
  std::unique_ptr<StateServer> server_;
  std::unique_ptr<DataPort> port_;
  std::unique_ptr<NodeLink> link_;
  std::unique_ptr<StoreClient> store_;
  std::unique_ptr<GroupConnections> group_;
  std::unique_ptr<Breaker> breaker_;
  std::thread mover_thread_, abort_thread_;

  // The trainer's own.
  bool ready_ = false;
  bool in_step_ = false;
  bool in_update_ = false;
  bool at_end_ = false;
  bool stopped_ = false;
  bool torn_ = false;
  bool first_commit_due_ = false;
  int64_t first_commit_ns_ = 0;
  bool committed_here_ = false;  // in this generation
  std::shared_ptr<RunInfo> run_;
  Step step_;
  StepRecord* record_ = nullptr;
};

// What the generators of (step, rank) are seeded with.
uint64_t StepSeed(uint64_t job_seed, Step step, Rank rank);

}  // namespace locum
