// What a trained model is worth: its loss on text it has not seen, and a text of its own.
#pragma once

#include <cstdint>
#include <string>

#include "data.h"
#include "model.h"

namespace gpt {

// Mean cross entropy, in nats per byte, over the held-out windows of the preset.
double HeldOutLoss(Model& model, const Text& text);

// `bytes` bytes after `prompt`, drawn with a temperature; printable characters and line ends only.
std::string Sample(Model& model, const std::string& prompt, int64_t bytes, uint64_t seed);

}  // namespace gpt
