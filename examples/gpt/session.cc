#include "session.h"

#include <gloo/rendezvous/file_store.h>
#include <locum/locum.h>

#include <filesystem>
#include <stdexcept>

#include "locum_session.h"
#include "random.h"

namespace gpt {
namespace {

// Without Locum: the steps are counted here, and a collective that breaks ends the program.
class AloneSession final : public Session {
 public:
  explicit AloneSession(const Flags& flags) : flags_(flags) {
    if (!flags_.rendezvous.empty()) std::filesystem::create_directories(flags_.rendezvous);
  }

  std::string Address() const override { return "127.0.0.1"; }
  uint64_t Seed() const override { return 0; }
  void Register(const std::string&, void*, uint64_t) override {}
  void OnAbort(std::function<void()>) override {}

  std::optional<Step> NextStep() override {
    if (held_ == flags_.steps) return std::nullopt;
    Step step;
    step.step = held_;
    step.generation = 1;
    step.rank = flags_.rank;
    step.world = flags_.world;
    step.regrouped = held_ == 0;
    step.data_position = held_ * flags_.world + flags_.rank;
    // What the worker library gives for a job of seed 0, so that a job under Locum and one without end in the same bits.
    step.seed = Mix64(Mix64(Mix(Seed()) ^ step.step) + kGolden * (step.rank + 1ull));
    return step;
  }

  void Connected() override {}
  void ReportLoss(double) override {}
  void EnterCollective() override {}
  void Broken(const std::string& why) override { throw std::runtime_error("the collective broke: " + why); }

  bool Commit(const std::function<void()>& update) override {
    update();
    held_++;
    return true;
  }

  bool Finish() override { return true; }
  bool IsRankZero() const override { return flags_.rank == 0; }

  std::shared_ptr<gloo::rendezvous::Store> Store() override {
    return std::make_shared<gloo::rendezvous::FileStore>(flags_.rendezvous);
  }

 private:
  const Flags flags_;
  uint64_t held_ = 0;
};

}  // namespace

std::unique_ptr<Session> Open(const Flags& flags, const std::string& fingerprint) {
  if (locum_available() == 0) return std::make_unique<AloneSession>(flags);
  if (flags.world > 1) throw std::runtime_error("under Locum the ranks come from Locum: no --world, no --rendezvous");
  return OpenLocum(flags, fingerprint);
}

}  // namespace gpt
