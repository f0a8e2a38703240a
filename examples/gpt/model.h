// A decoder-only transformer over bytes. Its parameters are views into the flat buffer of a State, its gradients views
// into a flat bucket, both in the order of the same list.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flags.h"
#include "state.h"
#include "torch.h"

namespace gpt {

constexpr int64_t kVocabulary = 256;  // bytes
constexpr double kDropout = 0.1;      // of the embeddings, while training

// The parameter list, and with it the layout of the state and of the gradients.
std::vector<Parameter> ParameterList(const Preset& preset);

// Keys and values of the bytes seen so far, so that a sample costs one byte's work per byte.
struct Cache {
  std::vector<torch::Tensor> keys, values;
  int64_t length = 0;
};

class Model {
 public:
  // `state` outlives the model. Draws the initial parameters from `seed`.
  Model(const Preset& preset, State* state, uint64_t seed);

  // Lets gradients accumulate in `bucket`, of state->count() floats, from now on.
  void BindGradients(float* bucket);

  // Mean cross entropy, in nats, of the next byte; `tokens` are batch sequences of context+1 bytes.
  torch::Tensor Loss(const std::vector<int64_t>& tokens, bool train);

  // Logits of the byte after `tokens`, which continue what is in the cache. No gradients.
  torch::Tensor Next(const std::vector<int64_t>& tokens, Cache* cache);

  const Preset& preset() const { return preset_; }

 private:
  struct Block {
    torch::Tensor norm1_gain, norm1_bias, qkv, qkv_bias, project, project_bias;
    torch::Tensor norm2_gain, norm2_bias, expand, expand_bias, contract, contract_bias;
  };

  // [batch, length] of bytes at `position` to [batch, length, width].
  torch::Tensor Forward(const torch::Tensor& tokens, int64_t position, bool train, Cache* cache);
  torch::Tensor Attention(const Block& block, const torch::Tensor& x, size_t layer, Cache* cache);

  const Preset preset_;
  std::vector<torch::Tensor> parameters_;  // in the order of the list
  std::vector<Parameter> layout_;
  torch::Tensor embedding_, positions_, final_gain_, final_bias_;
  std::vector<Block> blocks_;
  torch::Tensor mask_;  // [context, context], -inf above the diagonal
};

}  // namespace gpt
