// The worker library for C++17: a header over the C functions of locum.h, which has the contract.
//
//   locum::Options options;  options.total_steps = 1000;
//   locum::Job job(options);
//   job.Register("weights", weights.data(), bytes);
//   do {
//     while (auto step = job.NextStep()) {                      // blocks while a recovery runs
//       if (step.regrouped) {
//         if (!Connect(job, step, &group)) { job.Broken("cannot connect"); continue; }
//         job.Connected();
//       }
//       double loss = ForwardBackward(step);
//       job.ReportLoss(loss);
//       job.EnterCollective();
//       if (!AllReduce(group)) { job.Broken("all-reduce failed"); continue; }
//       job.Commit(step, [&] { optimizer.step(); });
//     }
//   } while (!job.Finish());
//
// Errors are locum::Error. The functions that a recovery interrupts return false or nothing instead: then go back to
// NextStep.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "locum/locum.h"

namespace locum {

class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& what) : std::runtime_error(what), code_(code) {}
  // A LOCUM_E code.
  int code() const { return code_; }

 private:
  int code_;
};

struct Options {
  std::uint64_t total_steps = 0;              // 0: the program calls Stop
  std::string fingerprint;                    // "key=value" lines
  std::chrono::milliseconds join_timeout{0};  // 0: the library's default
};

// A step to train, or nothing when the last state is reached; see locum_step for the fields.
class TrainStep {
 public:
  TrainStep() = default;
  explicit TrainStep(const locum_step& s)
      : step(s.step),
        generation(s.generation),
        rank(s.rank),
        world_size(s.world_size),
        regrouped(s.regrouped != 0),
        seed(s.seed),
        data_position(s.data_position),
        state_hash(s.state_hash),
        has_step_(true) {}
  explicit operator bool() const { return has_step_; }

  std::uint64_t step = 0;
  std::uint64_t generation = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  bool regrouped = false;
  std::uint64_t seed = 0;
  std::uint64_t data_position = 0;
  std::uint64_t state_hash = 0;

 private:
  bool has_step_ = false;
};

class Job {
 public:
  // True when this process was started by Locum; otherwise joining fails.
  static bool Available() { return locum_available() != 0; }

  explicit Job(const Options& options) {
    locum_options raw{};
    raw.struct_size = sizeof raw;
    raw.total_steps = options.total_steps;
    raw.fingerprint = options.fingerprint.c_str();
    raw.join_timeout_ms = static_cast<std::uint32_t>(options.join_timeout.count());
    Check(locum_join(&raw, &job_));
  }
  ~Job() { locum_leave(job_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // ---- Before the first NextStep. The memory, and what the functions capture, must outlive the job. ----

  void Register(const std::string& name, void* data, std::uint64_t bytes) {
    Check(locum_register_memory(job_, name.c_str(), data, bytes, nullptr));
  }
  void Register(const std::string& name, std::uint64_t bytes, locum_read_fn read, locum_write_fn write, void* context) {
    Check(locum_register(job_, name.c_str(), bytes, read, write, context, nullptr));
  }
  // Called by a thread of the library to make a running collective fail soon; must not throw. Optional: without it the
  // group's connections are shut down, see locum_set_abort.
  void SetAbort(std::function<void()> abort) {
    abort_ = std::make_unique<std::function<void()>>(std::move(abort));
    Check(locum_set_abort(
        job_, [](void* f) { (*static_cast<std::function<void()>*>(f))(); }, abort_.get()));
  }

  // ---- The step loop ----

  TrainStep NextStep() {
    locum_step raw{};
    raw.struct_size = sizeof raw;
    const int rc = locum_next_step(job_, &raw);
    if (rc < 0) Throw(rc);
    rank_ = raw.rank;
    return rc == 1 ? TrainStep(raw) : TrainStep();
  }
  void Connected() { Check(locum_connected(job_)); }
  void ReportLoss(double loss) { Check(locum_report_loss(job_, loss)); }
  void EnterCollective() { Check(locum_enter_collective(job_)); }
  void Broken(const std::string& why) { Check(locum_broken(job_, why.c_str())); }

  // Runs `update`, which turns the registered state into that of the next step. False: a recovery came first, nothing
  // was run. What `update` throws is thrown on; the state is torn then and the process must end.
  template <class Update>
  bool Commit(const TrainStep& /*step*/, Update&& update) {
    const int rc = locum_begin_update(job_);
    if (rc == LOCUM_E_RECOVERY) return false;
    Check(rc);
    try {
      std::forward<Update>(update)();
    } catch (const std::exception& e) {
      locum_fail_update(job_, e.what());
      throw;
    } catch (...) {
      locum_fail_update(job_, "the update threw");
      throw;
    }
    Check(locum_end_update(job_));
    return true;
  }

  // Makes the state now held the last one.
  void Stop() { Check(locum_stop(job_)); }

  // Blocks until it is on record that every rank has finished: then true, and effects such as a final report happen
  // once. False, rarely: a recovery took the last step back; go on with the step loop.
  bool Finish() {
    const int rc = locum_finish(job_);
    if (rc == LOCUM_E_RECOVERY) return false;
    Check(rc);
    return true;
  }

  // ---- The store of the generation; any thread ----

  // False: a recovery ended the generation.
  bool StoreSet(const std::string& key, const std::string& value) {
    const int rc = locum_store_set(job_, key.c_str(), value.data(), value.size());
    if (rc == LOCUM_E_RECOVERY) return false;
    Check(rc);
    return true;
  }
  // Nothing: a recovery ended the generation. A timeout is an Error.
  std::optional<std::string> StoreGet(const std::string& key, std::chrono::milliseconds timeout) {
    void* value = nullptr;
    std::size_t bytes = 0;
    const int rc = locum_store_get(job_, key.c_str(), static_cast<std::uint32_t>(timeout.count()), &value, &bytes);
    if (rc == LOCUM_E_RECOVERY) return std::nullopt;
    Check(rc);
    const std::unique_ptr<void, void (*)(void*)> owner(value, locum_free);
    return std::string(static_cast<const char*>(value), bytes);
  }

  // As of the last NextStep that returned, also of the one that gave no step; none before the first.
  std::optional<std::uint32_t> Rank() const {
    return rank_ == UINT32_MAX ? std::nullopt : std::optional<std::uint32_t>(rank_);
  }
  std::string Address() const { return locum_address(job_); }
  std::uint64_t Seed() const { return locum_seed(job_); }
  locum_job* handle() const { return job_; }

 private:
  [[noreturn]] static void Throw(int rc) { throw Error(rc, locum_last_error()); }
  static void Check(int rc) {
    if (rc < 0) Throw(rc);
  }

  locum_job* job_ = nullptr;
  std::uint32_t rank_ = UINT32_MAX;
  std::unique_ptr<std::function<void()>> abort_;
};

}  // namespace locum
