#include "model.h"

#include <cmath>
#include <limits>

namespace gpt {
namespace {

// The parameters of one block, in order. `residual` ones feed the residual stream and start smaller, so that its
// variance does not grow with depth.
struct Part {
  const char* name;
  int64_t rows, columns;  // in units of the width; 0 columns: a vector
  enum { kZero, kOne, kNormal, kResidual } init;
};

constexpr Part kBlock[] = {
    {"norm1.gain", 1, 0, Part::kOne},           {"norm1.bias", 1, 0, Part::kZero},
    {"qkv.weight", 3, 1, Part::kNormal},        {"qkv.bias", 3, 0, Part::kZero},
    {"project.weight", 1, 1, Part::kResidual},  {"project.bias", 1, 0, Part::kZero},
    {"norm2.gain", 1, 0, Part::kOne},           {"norm2.bias", 1, 0, Part::kZero},
    {"expand.weight", 4, 1, Part::kNormal},     {"expand.bias", 4, 0, Part::kZero},
    {"contract.weight", 1, 4, Part::kResidual}, {"contract.bias", 1, 0, Part::kZero},
};

double Deviation(const Parameter& parameter, int64_t layers) {
  const bool residual = parameter.name.find("project.weight") != std::string::npos ||
                        parameter.name.find("contract.weight") != std::string::npos;
  return residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(layers)) : 0.02;
}

}  // namespace

std::vector<Parameter> ParameterList(const Preset& preset) {
  std::vector<Parameter> list;
  size_t offset = 0;
  const auto add = [&](std::string name, std::vector<int64_t> shape, bool decay) {
    size_t count = 1;
    for (int64_t extent : shape) count *= static_cast<size_t>(extent);
    list.push_back({std::move(name), std::move(shape), offset, count, decay});
    offset += count;
  };
  const int64_t width = preset.width;
  add("embedding", {kVocabulary, width}, true);
  add("positions", {preset.context, width}, false);
  for (int64_t layer = 0; layer < preset.layers; layer++) {
    for (const Part& part : kBlock) {
      std::vector<int64_t> shape = {part.rows * width};
      if (part.columns != 0) shape.push_back(part.columns * width);
      add("block" + std::to_string(layer) + "." + part.name, std::move(shape), part.columns != 0);
    }
  }
  add("final.gain", {width}, false);
  add("final.bias", {width}, false);
  return list;
}

Model::Model(const Preset& preset, State* state, uint64_t seed) : preset_(preset), layout_(state->layout()) {
  torch::manual_seed(seed);
  for (const Parameter& parameter : layout_) {
    torch::Tensor tensor = torch::from_blob(state->parameters() + parameter.offset, parameter.shape);
    if (parameter.name.find("gain") != std::string::npos) {
      tensor.fill_(1);
    } else if (parameter.name.find("bias") == std::string::npos) {
      tensor.normal_(0, Deviation(parameter, preset.layers));
    }
    parameters_.push_back(tensor.set_requires_grad(true));
  }
  auto next = parameters_.begin();
  embedding_ = *next++;
  positions_ = *next++;
  for (int64_t layer = 0; layer < preset.layers; layer++) {
    Block b;
    for (torch::Tensor* part :
         {&b.norm1_gain, &b.norm1_bias, &b.qkv, &b.qkv_bias, &b.project, &b.project_bias, &b.norm2_gain, &b.norm2_bias,
          &b.expand, &b.expand_bias, &b.contract, &b.contract_bias}) {
      *part = *next++;
    }
    blocks_.push_back(b);
  }
  final_gain_ = *next++;
  final_bias_ = *next++;
  mask_ = torch::full({preset.context, preset.context}, -std::numeric_limits<float>::infinity()).triu_(1);
}

void Model::BindGradients(float* bucket) {
  for (size_t i = 0; i < parameters_.size(); i++) {
    parameters_[i].mutable_grad() = torch::from_blob(bucket + layout_[i].offset, layout_[i].shape);
  }
}

torch::Tensor Model::Attention(const Block& block, const torch::Tensor& x, size_t layer, Cache* cache) {
  const int64_t batch = x.size(0), length = x.size(1), heads = preset_.heads, size = preset_.width / heads;
  // [3, batch, heads, length, size]
  const torch::Tensor qkv = torch::linear(x, block.qkv, block.qkv_bias)
                                .view({batch, length, 3, heads, size})
                                .permute({2, 0, 3, 1, 4})
                                .contiguous();
  const torch::Tensor queries = qkv[0];
  torch::Tensor keys = qkv[1], values = qkv[2];
  if (cache) {
    if (cache->length > 0) {
      keys = torch::cat({cache->keys[layer], keys}, 2);
      values = torch::cat({cache->values[layer], values}, 2);
    }
    cache->keys[layer] = keys;
    cache->values[layer] = values;
  }
  const int64_t all = keys.size(2);
  torch::Tensor weights = torch::matmul(queries, keys.transpose(2, 3)) * (1.0 / std::sqrt(static_cast<double>(size)));
  weights = torch::softmax(weights + mask_.slice(0, all - length, all).slice(1, 0, all), -1);
  const torch::Tensor mixed =
      torch::matmul(weights, values).transpose(1, 2).contiguous().view({batch, length, preset_.width});
  return torch::linear(mixed, block.project, block.project_bias);
}

torch::Tensor Model::Forward(const torch::Tensor& tokens, int64_t position, bool train, Cache* cache) {
  const int64_t length = tokens.size(1);
  torch::Tensor x = torch::embedding(embedding_, tokens) + positions_.slice(0, position, position + length);
  x = torch::dropout(x, kDropout, train);
  for (size_t layer = 0; layer < blocks_.size(); layer++) {
    const Block& b = blocks_[layer];
    x = x + Attention(b, torch::layer_norm(x, {preset_.width}, b.norm1_gain, b.norm1_bias), layer, cache);
    const torch::Tensor y = torch::layer_norm(x, {preset_.width}, b.norm2_gain, b.norm2_bias);
    x = x + torch::linear(torch::gelu(torch::linear(y, b.expand, b.expand_bias)), b.contract, b.contract_bias);
  }
  return torch::layer_norm(x, {preset_.width}, final_gain_, final_bias_);
}

torch::Tensor Model::Loss(const std::vector<int64_t>& tokens, bool train) {
  const int64_t length = preset_.context;
  const int64_t batch = static_cast<int64_t>(tokens.size()) / (length + 1);
  const torch::Tensor all = torch::from_blob(const_cast<int64_t*>(tokens.data()), {batch, length + 1}, torch::kLong);
  // Copies: the backward pass needs them when `tokens` may be gone.
  const torch::Tensor inputs = all.slice(1, 0, length).clone();
  const torch::Tensor targets = all.slice(1, 1, length + 1).clone();
  const torch::Tensor logits = torch::linear(Forward(inputs, 0, train, nullptr), embedding_);
  return torch::cross_entropy_loss(logits.view({-1, kVocabulary}), targets.view({-1}));
}

torch::Tensor Model::Next(const std::vector<int64_t>& tokens, Cache* cache) {
  const torch::NoGradGuard no_grad;
  cache->keys.resize(blocks_.size());
  cache->values.resize(blocks_.size());
  const auto length = static_cast<int64_t>(tokens.size());
  const torch::Tensor input = torch::from_blob(const_cast<int64_t*>(tokens.data()), {1, length}, torch::kLong);
  const torch::Tensor last = Forward(input, cache->length, false, cache).slice(1, length - 1, length);
  cache->length += length;
  return torch::linear(last, embedding_).view({kVocabulary});
}

}  // namespace gpt
