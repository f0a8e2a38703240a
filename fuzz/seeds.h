// What a fuzz target may offer besides its entry: inputs from which others are derived, at least one for each
// kind of message. A target aborts when a property does not hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/word.h"

std::vector<std::string> FuzzSeeds();
int FuzzMixtures();  // how many inputs the ordinary test mixes from them; fewer where one takes long
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

inline std::string_view FuzzText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
