#include "trainer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data.h"
#include "evaluate.h"
#include "group.h"
#include "model.h"
#include "random.h"
#include "session.h"
#include "state.h"
#include "torch.h"

namespace gpt {
namespace {

constexpr double kClipNorm = 1.0;
constexpr int64_t kSampleBytes = 200;
constexpr char kPrompt[] = "And the LORD said ";
constexpr uint64_t kReports = 10;  // lines of progress in a run

void ConfigureTorch(const Flags& flags) {
  torch::set_num_threads(flags.threads);
  at::globalContext().setDeterministicAlgorithms(true, false);
}

Text LoadText(const Flags& flags) {
  Text text;
  std::string error;
  if (!text.Load(flags.data, flags.preset->context, &error)) throw std::runtime_error(error);
  return text;
}

class Trainer {
 public:
  // Everything that a spare can have done before it is needed: text, buffers, model, and a first pass through it.
  // Throws std::exception.
  explicit Trainer(const Flags& flags);

  // Trains to the last step and, on the rank 0 of the last step, reports. Throws std::exception.
  void Run();

 private:
  // What must be equal on all ranks for equal bits. Contains a known answer: the hash of the gradients of a fixed
  // step from a fixed state, which differs where processors or libraries calculate differently.
  std::string Fingerprint();

  // False with the reason in `why`: a collective broke.
  bool TrainStep(const Step& step, std::string* why);
  // Forward and backward. Leaves the gradients and, behind them, the loss in the bucket.
  double ComputeGradients(const Step& step);
  bool Connect(const Step& step, std::string* why);
  void Update(const Step& step);
  void Count();
  void Introduce() const;
  void Report();

  // A bucket that an abandoned collective may still write to is left to it.
  void TakeFreeBucket();

  const Flags flags_;
  Text text_;
  State state_;
  Model model_;
  std::vector<std::chrono::steady_clock::time_point> ends_;  // of the steps that this process committed
  // All gradients and the loss, in the layout of the parameters; what is reduced. Shared with a running collective.
  std::shared_ptr<float> bucket_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Session> session_;  // goes before the group, which its threads may abort
};

Trainer::Trainer(const Flags& flags)
    : flags_((ConfigureTorch(flags), flags)),
      text_(LoadText(flags)),
      state_(ParameterList(*flags.preset)),
      model_(*flags.preset, &state_, Mix(flags.seed)),
      bucket_(AllocateFloats(state_.count() + 1)) {
  model_.BindGradients(bucket_.get());
  session_ = Open(flags_, Fingerprint());
  group_ = std::make_unique<Group>([&] {
    GroupOptions options;
    options.address = session_->Address();
    return options;
  }());
  session_->Register("parameters", state_.parameters(), state_.buffer_bytes());
  session_->Register("exp_avg", state_.exp_avg(), state_.buffer_bytes());
  session_->Register("exp_avg_sq", state_.exp_avg_sq(), state_.buffer_bytes());
  session_->OnAbort([group = group_.get()] { group->Abort(); });
}

std::string Trainer::Fingerprint() {
  const double loss = ComputeGradients(Step{});
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  XXH3_64bits_update(&hash, &loss, sizeof(loss));
  XXH3_64bits_update(&hash, bucket_.get(), state_.buffer_bytes());
  char lines[512];
  std::snprintf(lines, sizeof(lines),
                "program=gpt\npreset=%s\nbatch=%" PRId64 "\nsteps=%" PRIu64 "\nseed=%" PRIu64
                "\nthreads=%d\ntext=%016" PRIx64 "\ntorch=%s\nanswer=%016" PRIx64 "\n",
                flags_.preset->name, flags_.batch, flags_.steps, flags_.seed, flags_.threads, text_.Hash(),
                TORCH_VERSION, static_cast<uint64_t>(XXH3_64bits_digest(&hash)));
  return lines;
}

double Trainer::ComputeGradients(const Step& step) {
  std::fill_n(bucket_.get(), state_.count() + 1, 0.0f);
  torch::manual_seed(Mix(flags_.seed) ^ step.seed);
  torch::Tensor loss = model_.Loss(text_.Batch(flags_.seed, step.data_position, flags_.batch), true);
  loss.backward();
  const auto value = loss.item<float>();
  bucket_.get()[state_.count()] = value;
  return value;
}

bool Trainer::Connect(const Step& step, std::string* why) {
  if (step.world == 1) return true;
  return group_->Connect(session_->Store(), static_cast<int>(step.rank), static_cast<int>(step.world),
                         {step.generation, step.step, step.state_hash}, why);
}

void Trainer::TakeFreeBucket() {
  if (bucket_.use_count() > 1) {
    std::shared_ptr<float> fresh = AllocateFloats(state_.count() + 1);
    model_.BindGradients(fresh.get());
    bucket_ = std::move(fresh);
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // after the last write of a collective that let go of it
}

void Trainer::Update(const Step& step) {
  // The bucket holds sums over all ranks.
  const double world = step.world;
  const double norm = Norm(bucket_.get(), state_.count()) / world;
  if (!std::isfinite(norm))
    throw std::runtime_error("the gradients of step " + std::to_string(step.step) + " are not finite");
  AdamW rule;
  rule.learning_rate = CosineRate(flags_.preset->learning_rate, step.step, flags_.steps);
  const double scale = std::min(1.0, kClipNorm / (norm + 1e-6)) / world;
  const bool committed = session_->Commit([&] { state_.Update(rule, step.step, bucket_.get(), scale); });
  const uint64_t now = step.step + 1;
  if (committed) Count();
  if (committed && step.rank == 0 && (now == 1 || now % std::max<uint64_t>(flags_.steps / kReports, 1) == 0)) {
    std::printf("step %" PRIu64 " loss %.4f\n", now, bucket_.get()[state_.count()] / world);
    std::fflush(stdout);
  }
}

void Trainer::Count() { ends_.push_back(std::chrono::steady_clock::now()); }

void Trainer::Run() {
  do {
    while (const std::optional<Step> step = session_->NextStep()) {
      std::string why;
      if (!TrainStep(*step, &why)) session_->Broken(why);
      group_->Rearm();
    }
  } while (!session_->Finish());
  if (session_->IsRankZero()) Report();
}

void Trainer::Introduce() const {
  std::printf("gpt: %s, %.1f M parameters, %.1f MB of state, %" PRId64 " sequences of %" PRId64 " bytes per rank\n",
              flags_.preset->name, static_cast<double>(state_.count()) * 1e-6,
              static_cast<double>(state_.buffer_bytes()) * 3e-6, flags_.batch, flags_.preset->context);
  std::fflush(stdout);
}

bool Trainer::TrainStep(const Step& step, std::string* why) {
  if (step.regrouped) {
    if (!Connect(step, why)) {
      *why = "connect: " + *why;
      return false;
    }
    session_->Connected();
    if (step.step == 0 && step.rank == 0) Introduce();
  }
  TakeFreeBucket();
  session_->ReportLoss(ComputeGradients(step));
  session_->EnterCollective();
  if (step.world > 1 && !group_->AllReduceSum(bucket_, state_.count() + 1, why)) {
    *why = "all-reduce: " + *why;
    return false;
  }
  Update(step);
  return true;
}

void Trainer::Report() {
  const double loss = HeldOutLoss(model_, text_);
  const double entropy = text_.UnigramEntropy();
  const double bit = std::log(2.0);
  std::printf("held-out loss %.4f (%.3f bits per byte); the text's byte frequencies alone: %.4f (%.3f bits)\n", loss,
              loss / bit, entropy, entropy / bit);
  if (ends_.size() > 1) {
    std::vector<double> times;
    for (size_t i = 1; i < ends_.size(); ++i)
      times.push_back(std::chrono::duration<double>(ends_[i] - ends_[i - 1]).count());
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    std::printf("%zu steps after the first in %.6f s here, median %.6f s\n", times.size(),
                std::chrono::duration<double>(ends_.back() - ends_.front()).count(), times[times.size() / 2]);
  }
  std::printf("sample:\n%s\n", Sample(model_, kPrompt, kSampleBytes, Mix(flags_.seed)).c_str());
  std::printf("final step=%" PRIu64 " loss=%.9g state=%016" PRIx64 "\n", flags_.steps, loss, state_.Hash());
  std::fflush(stdout);
}

}  // namespace

void Train(const Flags& flags) {
  try {
    Trainer trainer(flags);
    trainer.Run();
  } catch (const c10::Error& e) {
    throw std::runtime_error(e.what_without_backtrace());
  }
}

}  // namespace gpt
