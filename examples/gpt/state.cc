#include "state.h"

#define XXH_INLINE_ALL
#include <sys/mman.h>
#include <xxhash.h>

#include <array>
#include <cmath>
#include <cstring>
#include <new>

namespace gpt {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the hash is defined over little-endian floats");

std::shared_ptr<float> AllocateFloats(size_t count) {
  const size_t bytes = count * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
  std::memset(memory, 0, bytes);
  return {static_cast<float*>(memory), [bytes](float* p) { munmap(p, bytes); }};
}

State::State(std::vector<Parameter> layout) : layout_(std::move(layout)) {
  for (const Parameter& parameter : layout_) count_ += parameter.count;
  parameters_ = AllocateFloats(count_);
  exp_avg_ = AllocateFloats(count_);
  exp_avg_sq_ = AllocateFloats(count_);
}

void State::Update(const AdamW& rule, uint64_t step, const float* gradient, double scale) {
  const auto t = static_cast<double>(step + 1);
  const double correction1 = 1 - std::pow(rule.beta1, t);
  const double correction2 = 1 - std::pow(rule.beta2, t);
  const auto beta1 = static_cast<float>(rule.beta1), beta2 = static_cast<float>(rule.beta2);
  const auto rest1 = static_cast<float>(1 - rule.beta1), rest2 = static_cast<float>(1 - rule.beta2);
  const auto step_size = static_cast<float>(rule.learning_rate / correction1);
  const auto root = static_cast<float>(1 / std::sqrt(correction2));
  const auto epsilon = static_cast<float>(rule.epsilon);
  const auto factor = static_cast<float>(scale);
  for (const Parameter& parameter : layout_) {
    const float keep = parameter.decay ? static_cast<float>(1 - rule.learning_rate * rule.weight_decay) : 1.0f;
    float* __restrict p = parameters_.get() + parameter.offset;
    float* __restrict m = exp_avg_.get() + parameter.offset;
    float* __restrict v = exp_avg_sq_.get() + parameter.offset;
    const float* __restrict g = gradient + parameter.offset;
    for (size_t i = 0; i < parameter.count; i++) {
      const float x = g[i] * factor;
      m[i] = m[i] * beta1 + x * rest1;
      v[i] = v[i] * beta2 + x * x * rest2;
      p[i] = p[i] * keep - step_size * m[i] / (std::sqrt(v[i]) * root + epsilon);
    }
  }
}

uint64_t State::Hash() const {
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (const auto& buffer : {parameters_, exp_avg_, exp_avg_sq_}) {
    XXH3_64bits_update(&hash, buffer.get(), count_ * sizeof(float));
  }
  return XXH3_64bits_digest(&hash);
}

double Norm(const float* values, size_t count) {
  std::array<double, 16> sums{};  // independent, so that the processor need not wait from one to the next
  size_t i = 0;
  for (; i + sums.size() <= count; i += sums.size()) {
    for (size_t j = 0; j < sums.size(); j++) sums[j] += static_cast<double>(values[i + j]) * values[i + j];
  }
  double sum = 0;
  for (; i < count; i++) sum += static_cast<double>(values[i]) * values[i];
  for (double part : sums) sum += part;
  return std::sqrt(sum);
}

double CosineRate(double peak, uint64_t step, uint64_t steps) {
  const uint64_t rise = std::min<uint64_t>(100, steps / 5 + 1);
  if (step < rise) return peak * static_cast<double>(step + 1) / static_cast<double>(rise);
  const double way = static_cast<double>(step - rise) / static_cast<double>(std::max<uint64_t>(steps - rise, 1));
  constexpr double kPi = 3.14159265358979323846;
  return peak * (0.1 + 0.9 * 0.5 * (1 + std::cos(kPi * way)));
}

}  // namespace gpt
