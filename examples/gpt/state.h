// What is trained, and what AdamW remembers: three flat buffers of the same layout, which are the whole of the
// registered state. The layout is a function of the model's parameter list alone. The step number is not in it; it is
// the state's own number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpt {

// Zeroed, page-aligned memory that is really there.
std::shared_ptr<float> AllocateFloats(size_t count);

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  size_t offset = 0;  // in floats
  size_t count = 0;
  bool decay = false;  // matrices are pulled towards zero; gains, biases and positions are not
};

struct AdamW {
  double learning_rate;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};

class State {
 public:
  explicit State(std::vector<Parameter> layout);

  size_t count() const { return count_; }
  uint64_t buffer_bytes() const { return count_ * sizeof(float); }
  const std::vector<Parameter>& layout() const { return layout_; }
  float* parameters() { return parameters_.get(); }
  float* exp_avg() { return exp_avg_.get(); }
  float* exp_avg_sq() { return exp_avg_sq_.get(); }

  // Makes state step+1 of state step. `gradient` is multiplied by `scale` first. Element by element in one order,
  // so the same input gives the same bits.
  void Update(const AdamW& rule, uint64_t step, const float* gradient, double scale);

  // XXH3-64 over parameters, exp_avg and exp_avg_sq, in this order, as little-endian IEEE floats.
  uint64_t Hash() const;

 private:
  const std::vector<Parameter> layout_;
  size_t count_ = 0;
  std::shared_ptr<float> parameters_, exp_avg_, exp_avg_sq_;
};

// Euclidean norm, added up in double and in one order.
double Norm(const float* values, size_t count);

// The learning rate of a step: a short rise, then half a cosine down to a tenth of the peak.
double CosineRate(double peak, uint64_t step, uint64_t steps);

}  // namespace gpt
