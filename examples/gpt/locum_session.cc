#include "locum_session.h"

#include <gloo/rendezvous/store.h>
#include <locum/locum.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace gpt {
namespace {

int Check(int status) {
  if (status < 0) throw std::runtime_error(locum_last_error());
  return status;
}

// The generation's key-value exchange, as Gloo's kind of store. `get` waits, so `wait` need not.
class LocumStore final : public gloo::rendezvous::Store {
 public:
  explicit LocumStore(locum_job* job) : job_(job) {}

  void set(const std::string& key, const std::vector<char>& value) override {
    Check(locum_store_set(job_, key.c_str(), value.data(), value.size()));
  }
  std::vector<char> get(const std::string& key) override {
    void* value = nullptr;
    size_t bytes = 0;
    Check(locum_store_get(job_, key.c_str(), kTimeoutMs, &value, &bytes));
    const auto* begin = static_cast<const char*>(value);
    std::vector<char> copy(begin, begin + bytes);
    locum_free(value);
    return copy;
  }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {}

 private:
  static constexpr uint32_t kTimeoutMs = 20'000;
  locum_job* const job_;
};

class LocumSession final : public Session {
 public:
  LocumSession(const Flags& flags, const std::string& fingerprint) {
    locum_options options{};
    options.struct_size = sizeof(options);
    options.total_steps = flags.steps;
    options.fingerprint = fingerprint.c_str();
    Check(locum_join(&options, &job_));
  }

  std::string Address() const override { return locum_address(job_); }
  uint64_t Seed() const override { return locum_seed(job_); }

  void Register(const std::string& name, void* data, uint64_t bytes) override {
    Check(locum_register_memory(job_, name.c_str(), data, bytes, nullptr));
  }
  void OnAbort(std::function<void()> abort) override {
    abort_ = std::move(abort);
    Check(locum_set_abort(
        job_, [](void* self) { static_cast<LocumSession*>(self)->abort_(); }, this));
  }

  std::optional<Step> NextStep() override {
    locum_step step{};
    step.struct_size = sizeof(step);
    if (Check(locum_next_step(job_, &step)) == 0) return std::nullopt;
    return Step{step.step,           step.generation, step.rank,         step.world_size,
                step.regrouped != 0, step.seed,       step.data_position};
  }
  void Connected() override { Check(locum_connected(job_)); }
  void ReportLoss(double loss) override { Check(locum_report_loss(job_, loss)); }
  void EnterCollective() override { Check(locum_enter_collective(job_)); }
  void Broken(const std::string& why) override { Check(locum_broken(job_, why.c_str())); }

  bool Commit(const std::function<void()>& update) override {
    const int status = locum_begin_update(job_);
    if (status == LOCUM_E_RECOVERY) return false;
    Check(status);
    update();
    Check(locum_end_update(job_));
    return true;
  }
  void Finish() override { Check(locum_finish(job_)); }

  std::shared_ptr<gloo::rendezvous::Store> Store(const Step&) override { return std::make_shared<LocumStore>(job_); }

 private:
  locum_job* job_ = nullptr;
  std::function<void()> abort_;
};

}  // namespace

std::unique_ptr<Session> OpenLocum(const Flags& flags, const std::string& fingerprint) {
  return std::make_unique<LocumSession>(flags, fingerprint);
}

}  // namespace gpt
