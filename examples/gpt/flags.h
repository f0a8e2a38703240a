// The command line: what a run's result depends on, besides the world size.
#pragma once

#include <cstdint>
#include <string>

namespace gpt {

// Sizes, from about 1 to 100 million parameters, and what goes with them.
struct Preset {
  const char* name;
  int64_t layers;
  int64_t heads;
  int64_t width;
  int64_t context;          // bytes of text that are seen at once
  int64_t batch;            // sequences per rank and step
  double learning_rate;     // at the peak
  int64_t heldout_windows;  // contexts of held-out text on which the result is measured
};

const Preset* FindPreset(const std::string& name);  // null: there is none of this name

struct Flags {
  const Preset* preset = nullptr;
  std::string data;  // path of the text
  uint64_t steps = 200;
  uint64_t seed = 0;
  int64_t batch = 0;  // per rank
  int threads = 1;    // per worker
  // Without Locum: one of several processes that find each other through a directory.
  uint32_t world = 1;
  uint32_t rank = 0;
  std::string rendezvous;
};

// Returns -1 when the program shall run, else its exit status; what is to be said has then been said.
int ParseFlags(int argc, char** argv, Flags* flags);

}  // namespace gpt
