// The text. Its last twentieth is held out. What a rank trains on is a function of the seed and the data position.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

class Text {
 public:
  // Reads the file; returns false with the reason in `error`.
  bool Load(const std::string& path, int64_t context, std::string* error);

  // `batch` sequences of context+1 bytes each for the piece of data at `position`, one after the other.
  std::vector<int64_t> Batch(uint64_t seed, uint64_t position, int64_t batch) const;

  // Up to `count` sequences of context+1 bytes, spread evenly over the held-out text.
  std::vector<int64_t> HeldOut(int64_t count) const;

  // Entropy, in nats per byte, of the held-out text's own byte frequencies: what no model that ignores the
  // order of the bytes can beat.
  double UnigramEntropy() const;

  uint64_t Hash() const { return hash_; }
  size_t bytes() const { return text_.size(); }

 private:
  void Append(size_t begin, std::vector<int64_t>* tokens) const;

  std::string text_;
  size_t train_ = 0;  // bytes before the held-out part
  int64_t context_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace gpt
