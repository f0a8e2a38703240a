// Where the steps come from: a job that Locum runs, or this process alone, or a few processes that found each other
// through a directory. The trainer's loop is the same for all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "flags.h"

namespace gloo::rendezvous {
class Store;
}

namespace gpt {

struct Step {
  uint64_t step = 0;  // the state that is held
  uint64_t generation = 0;
  uint32_t rank = 0;
  uint32_t world = 1;
  bool regrouped = false;      // connect anew before the first collective
  uint64_t seed = 0;           // a function of (job seed, step, rank)
  uint64_t data_position = 0;  // step * world + rank
  uint64_t state_hash = 0;     // when regrouped: as verified by all ranks
};

class Session {
 public:
  virtual ~Session() = default;

  virtual std::string Address() const = 0;  // numeric; what this rank's group listens on
  virtual uint64_t Seed() const = 0;        // the job's

  virtual void Register(const std::string& name, void* data, uint64_t bytes) = 0;
  virtual void OnAbort(std::function<void()> abort) = 0;

  // The next step to train; nothing when the job has reached its last state.
  virtual std::optional<Step> NextStep() = 0;
  virtual void Connected() = 0;
  virtual void ReportLoss(double loss) = 0;
  virtual void EnterCollective() = 0;
  virtual void Broken(const std::string& why) = 0;
  // Runs `update`, unless a recovery has frozen the state. Returns whether it ran.
  virtual bool Commit(const std::function<void()>& update) = 0;
  // True: the end is on record, effects outside the job may follow. False: a recovery took the last step back, go on.
  virtual bool Finish() = 0;
  // Whether this process holds rank 0, as of the last NextStep.
  virtual bool IsRankZero() const = 0;

  // A store without keys of earlier groups, in which this generation's group is built. May outlive the session.
  virtual std::shared_ptr<gloo::rendezvous::Store> Store() = 0;
};

// `fingerprint`: "key=value" lines of all that must be equal on all ranks for equal bits. Throws std::exception.
std::unique_ptr<Session> Open(const Flags& flags, const std::string& fingerprint);

}  // namespace gpt
