#include "state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "data.h"
#include "model.h"
#include "torch.h"

namespace gpt {
namespace {

constexpr Preset kMinute = {"minute", 2, 2, 8, 16, 2, 1e-2, 4};

std::vector<int64_t> SomeTokens() {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < kMinute.batch * (kMinute.context + 1); i++) tokens.push_back((i * i * 31 + 7) % kVocabulary);
  return tokens;
}

TEST(State, Update_EqualsTorchAdamW) {
  State state({{"matrix", {6, 7}, 0, 42, true}, {"vector", {5}, 42, 5, false}});
  torch::manual_seed(1);
  torch::Tensor matrix = torch::randn({6, 7}), vector = torch::randn({5});
  std::copy_n(matrix.data_ptr<float>(), 42, state.parameters());
  std::copy_n(vector.data_ptr<float>(), 5, state.parameters() + 42);
  matrix.set_requires_grad(true);
  vector.set_requires_grad(true);
  AdamW rule{0.01};
  const auto options = [&](double decay) {
    auto o = torch::optim::AdamWOptions(rule.learning_rate);
    o.betas({rule.beta1, rule.beta2}).eps(rule.epsilon).weight_decay(decay);
    return o;
  };
  torch::optim::AdamW first({matrix}, options(rule.weight_decay)), second({vector}, options(0));
  for (uint64_t step = 0; step < 20; step++) {
    const torch::Tensor gradient = torch::randn({47});
    matrix.mutable_grad() = gradient.slice(0, 0, 42).view({6, 7}) * 0.5;
    vector.mutable_grad() = gradient.slice(0, 42, 47) * 0.5;
    first.step();
    second.step();
    state.Update(rule, step, gradient.data_ptr<float>(), 0.5);
  }
  for (int i = 0; i < 42; i++) EXPECT_NEAR(state.parameters()[i], matrix.data_ptr<float>()[i], 1e-5);
  for (int i = 0; i < 5; i++) EXPECT_NEAR(state.parameters()[42 + i], vector.data_ptr<float>()[i], 1e-5);
}

TEST(State, Hash_ChangesWithEveryBuffer) {
  State state({{"vector", {100}, 0, 100, false}});
  std::set<uint64_t> hashes = {state.Hash()};
  for (float* buffer : {state.parameters(), state.exp_avg(), state.exp_avg_sq()}) {
    buffer[99] = 1;
    hashes.insert(state.Hash());
    buffer[99] = 0;
  }
  EXPECT_EQ(hashes.size(), 4u);
}

TEST(Norm, OfCountsThatFillNoLane_IsEuclid) {
  const std::vector<float> values(19, 3.0f);
  EXPECT_DOUBLE_EQ(Norm(values.data(), 19), 3 * std::sqrt(19.0));
  EXPECT_DOUBLE_EQ(Norm(values.data(), 1), 3);
}

TEST(CosineRate, RisesThenFallsToATenth) {
  EXPECT_LT(CosineRate(1, 0, 1000), 0.011);
  EXPECT_NEAR(CosineRate(1, 100, 1000), 1, 1e-9);
  EXPECT_NEAR(CosineRate(1, 999, 1000), 0.1, 1e-3);
  for (uint64_t step = 100; step < 999; step++) EXPECT_GT(CosineRate(1, step, 1000), CosineRate(1, step + 1, 1000));
}

TEST(ParameterList, IsDenseAndPresetsHaveTheirSizes) {
  size_t next = 0;
  for (const Parameter& parameter : ParameterList(kMinute)) {
    EXPECT_EQ(parameter.offset, next);
    next += parameter.count;
  }
  for (const auto& [name, millions] :
       std::map<std::string, double>{{"tiny", 1}, {"small", 10}, {"medium", 30}, {"large", 100}}) {
    const std::vector<Parameter> list = ParameterList(*FindPreset(name));
    EXPECT_NEAR(static_cast<double>(list.back().offset) / 1e6, millions, 0.15 * millions) << name;
  }
}

TEST(Model, Gradients_AccumulateInTheBucket) {
  State state(ParameterList(kMinute));
  Model model(kMinute, &state, 1);
  std::vector<float> once(state.count()), twice(state.count());
  model.BindGradients(once.data());
  model.Loss(SomeTokens(), false).backward();
  EXPECT_GT(Norm(once.data(), once.size()), 0);
  model.BindGradients(twice.data());
  for (int i = 0; i < 2; i++) model.Loss(SomeTokens(), false).backward();
  for (size_t i = 0; i < once.size(); i++) ASSERT_EQ(twice[i], 2 * once[i]) << i;
}

TEST(Model, Dropout_IsAFunctionOfTheSeed) {
  State state(ParameterList(kMinute));
  Model model(kMinute, &state, 1);
  const auto loss = [&](uint64_t seed) {
    torch::manual_seed(seed);
    return model.Loss(SomeTokens(), true).item<float>();
  };
  EXPECT_EQ(loss(5), loss(5));
  EXPECT_NE(loss(5), loss(6));
}

TEST(Model, Next_WithCache_EqualsTheWholeSequence) {
  State state(ParameterList(kMinute));
  Model model(kMinute, &state, 1);
  const std::vector<int64_t> tokens = {'a', 'b', 'c', 'd', 'e'};
  Cache whole, part;
  const torch::Tensor expected = model.Next(tokens, &whole);
  model.Next({'a', 'b'}, &part);
  model.Next({'c'}, &part);
  EXPECT_TRUE(torch::allclose(model.Next({'d', 'e'}, &part), expected, 1e-4, 1e-5));
}

}  // namespace
}  // namespace gpt
