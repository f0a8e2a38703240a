#include "data.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "random.h"

namespace gpt {

bool Text::Load(const std::string& path, int64_t context, std::string* error) {
  context_ = context;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) {
    *error = path + ": " + std::strerror(errno);
    return false;
  }
  std::array<char, 1 << 16> piece;
  for (size_t n; (n = std::fread(piece.data(), 1, piece.size(), file)) > 0;) text_.append(piece.data(), n);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) {
    *error = path + ": cannot be read";
    return false;
  }
  const size_t least = 40 * (static_cast<size_t>(context) + 1);
  if (text_.size() < least) {
    *error = path + ": " + std::to_string(text_.size()) + " bytes are too few; at least " + std::to_string(least);
    return false;
  }
  train_ = text_.size() - text_.size() / 20;
  hash_ = XXH3_64bits(text_.data(), text_.size());
  return true;
}

void Text::Append(size_t begin, std::vector<int64_t>* tokens) const {
  for (int64_t i = 0; i <= context_; i++) tokens->push_back(static_cast<uint8_t>(text_[begin + i]));
}

std::vector<int64_t> Text::Batch(uint64_t seed, uint64_t position, int64_t batch) const {
  std::vector<int64_t> tokens;
  tokens.reserve(batch * (context_ + 1));
  const uint64_t places = train_ - context_;
  for (int64_t i = 0; i < batch; i++) {
    Append(Mix(Mix(seed) ^ (position * static_cast<uint64_t>(batch) + i)) % places, &tokens);
  }
  return tokens;
}

std::vector<int64_t> Text::HeldOut(int64_t count) const {
  const int64_t length = context_ + 1;
  const auto held_out = static_cast<int64_t>(text_.size() - train_);
  count = std::min(count, held_out / length);
  std::vector<int64_t> tokens;
  tokens.reserve(count * length);
  for (int64_t i = 0; i < count; i++)
    Append(train_ + (held_out - length) * i / std::max<int64_t>(count - 1, 1), &tokens);
  return tokens;
}

double Text::UnigramEntropy() const {
  std::array<uint64_t, 256> counts{};
  for (size_t i = train_; i < text_.size(); i++) counts[static_cast<uint8_t>(text_[i])]++;
  const auto total = static_cast<double>(text_.size() - train_);
  double entropy = 0;
  for (uint64_t n : counts) {
    if (n != 0) entropy -= static_cast<double>(n) / total * std::log(static_cast<double>(n) / total);
  }
  return entropy;
}

}  // namespace gpt
