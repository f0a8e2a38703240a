#include "evaluate.h"

#include <algorithm>
#include <vector>

namespace gpt {
namespace {
constexpr int64_t kWindowsAtOnce = 8;
constexpr double kTemperature = 0.8;
}  // namespace

double HeldOutLoss(Model& model, const Text& text) {
  const torch::NoGradGuard no_grad;
  const std::vector<int64_t> tokens = text.HeldOut(model.preset().heldout_windows);
  const auto length = static_cast<size_t>(model.preset().context + 1);
  const size_t windows = tokens.size() / length;
  double sum = 0;
  for (size_t begin = 0; begin < windows; begin += kWindowsAtOnce) {
    const size_t end = std::min(windows, begin + kWindowsAtOnce);
    const std::vector<int64_t> part(tokens.begin() + static_cast<std::ptrdiff_t>(begin * length),
                                    tokens.begin() + static_cast<std::ptrdiff_t>(end * length));
    sum += model.Loss(part, false).item<double>() * static_cast<double>(end - begin);
  }
  return sum / static_cast<double>(windows);
}

std::string Sample(Model& model, const std::string& prompt, int64_t bytes, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(seed);
  std::string text = prompt;
  Cache cache;
  std::vector<int64_t> next(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < bytes; i++) {
    if (cache.length + static_cast<int64_t>(next.size()) > model.preset().context) {
      // The context is full: go on with its second half.
      cache = {};
      next.clear();
      for (size_t j = text.size() - static_cast<size_t>(model.preset().context / 2); j < text.size(); j++) {
        next.push_back(static_cast<uint8_t>(text[j]));
      }
    }
    torch::Tensor logits = model.Next(next, &cache) / kTemperature;
    logits.slice(0, 0, '\n').fill_(-1e9);
    logits.slice(0, '\n' + 1, ' ').fill_(-1e9);
    logits.slice(0, '~' + 1, kVocabulary).fill_(-1e9);
    const auto byte = torch::multinomial(torch::softmax(logits, -1), 1).item<int64_t>();
    text.push_back(static_cast<char>(byte));
    next.assign(1, byte);
  }
  return text;
}

}  // namespace gpt
