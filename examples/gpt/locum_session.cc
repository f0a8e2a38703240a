#include "locum_session.h"

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <locum/locum.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace gpt {
namespace {

// The generation's key-value exchange, as Gloo's kind of store. `get` waits, so `wait` need not. Shares the job, since
// an abandoned group may still be inside when the trainer has gone on.
class LocumStore final : public gloo::rendezvous::Store {
 public:
  explicit LocumStore(std::shared_ptr<locum::Job> job) : job_(std::move(job)) {}

  void set(const std::string& key, const std::vector<char>& value) override {
    if (!job_->StoreSet(key, std::string(value.begin(), value.end()))) throw Ended();
  }
  std::vector<char> get(const std::string& key) override {
    const std::optional<std::string> value = job_->StoreGet(key, kTimeout);
    if (!value) throw Ended();
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {}

 private:
  static constexpr std::chrono::milliseconds kTimeout{20'000};
  static std::runtime_error Ended() { return std::runtime_error("a recovery ended the generation"); }

  const std::shared_ptr<locum::Job> job_;
};

class LocumSession final : public Session {
 public:
  LocumSession(const Flags& flags, const std::string& fingerprint) {
    locum::Options options;
    options.total_steps = flags.steps;
    options.fingerprint = fingerprint;
    job_ = std::make_shared<locum::Job>(options);
  }

  std::string Address() const override { return job_->Address(); }
  uint64_t Seed() const override { return job_->Seed(); }

  void Register(const std::string& name, void* data, uint64_t bytes) override { job_->Register(name, data, bytes); }
  void OnAbort(std::function<void()> abort) override { job_->SetAbort(std::move(abort)); }

  std::optional<Step> NextStep() override {
    step_ = job_->NextStep();
    if (!step_) return std::nullopt;
    return Step{step_.step,      step_.generation, step_.rank,          step_.world_size,
                step_.regrouped, step_.seed,       step_.data_position, step_.state_hash};
  }
  void Connected() override { job_->Connected(); }
  void ReportLoss(double loss) override { job_->ReportLoss(loss); }
  void EnterCollective() override { job_->EnterCollective(); }
  void Broken(const std::string& why) override { job_->Broken(why); }
  bool Commit(const std::function<void()>& update) override { return job_->Commit(step_, update); }
  bool Finish() override { return job_->Finish(); }
  bool IsRankZero() const override { return job_->Rank() == 0u; }

  std::shared_ptr<gloo::rendezvous::Store> Store() override { return std::make_shared<LocumStore>(job_); }

 private:
  std::shared_ptr<locum::Job> job_;
  locum::TrainStep step_;
};

}  // namespace

std::unique_ptr<Session> OpenLocum(const Flags& flags, const std::string& fingerprint) {
  return std::make_unique<LocumSession>(flags, fingerprint);
}

}  // namespace gpt
