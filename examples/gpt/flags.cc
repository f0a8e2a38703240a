#include "flags.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

namespace gpt {
namespace {

constexpr Preset kPresets[] = {
    {"tiny", 5, 4, 128, 128, 4, 3e-3, 64},
    {"small", 6, 6, 384, 128, 4, 8e-4, 64},
    {"medium", 10, 8, 512, 128, 4, 6e-4, 32},
    {"large", 14, 12, 768, 128, 4, 3e-4, 16},
};

constexpr char kUsage[] =
    R"(usage: gpt [FLAG VALUE]...

Trains a small language model on a text, byte by byte, then prints its loss on held-out text, a sample, and a
hash of the final state. Under `locum run` it is one rank of a job; alone it is a job of one rank.

  --data FILE        the text; default: ../data/kjv.txt beside this program's folder, made by ./dev setup
  --preset NAME      tiny (1 M parameters), small (10 M), medium (30 M), large (100 M); default tiny
  --steps N          optimizer steps; default 200
  --seed N           of the initial state, the data order and the dropout; default 0
  --batch N          sequences per rank and step; default 4
  --threads N        per worker; default 1

Several processes without Locum, all with the same DIR, which must be empty or not exist:
  --world N --rank R --rendezvous DIR
)";

int Refuse(const std::string& what) {
  std::fprintf(stderr, "gpt: %s\n`gpt --help` tells all flags.\n", what.c_str());
  return 2;
}

std::optional<uint64_t> ParseNumber(const char* text, uint64_t low, uint64_t high) {
  if (*text < '0' || *text > '9') return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || value < low || value > high) return std::nullopt;
  return value;
}

std::string DefaultData() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  // build/release/bin/gpt finds build/data/kjv.txt; an installed bin/gpt finds data/kjv.txt.
  for (const char* relative : {"../data/kjv.txt", "../../data/kjv.txt"}) {
    const std::filesystem::path path = (self.parent_path() / relative).lexically_normal();
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return "";
}

}  // namespace

const Preset* FindPreset(const std::string& name) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return &preset;
  }
  return nullptr;
}

int ParseFlags(int argc, char** argv, Flags* flags) {
  flags->preset = FindPreset("tiny");
  uint64_t batch = 0, threads = 1, world = 1, rank = 0;
  const struct {
    const char* flag;
    uint64_t low, high;
    uint64_t* value;
  } numbers[] = {
      {"--steps", 1, 1'000'000'000, &flags->steps},
      {"--seed", 0, UINT64_MAX, &flags->seed},
      {"--batch", 1, 4096, &batch},
      {"--threads", 1, 1024, &threads},
      {"--world", 1, 4096, &world},
      {"--rank", 0, 4095, &rank},
  };
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (i + 1 == argc) return Refuse("'" + flag + "' lacks a value, or is no flag");
    const char* value = argv[i + 1];
    if (flag == "--data") {
      flags->data = value;
    } else if (flag == "--rendezvous") {
      flags->rendezvous = value;
    } else if (flag == "--preset") {
      flags->preset = FindPreset(value);
      if (!flags->preset) return Refuse("no preset '" + std::string(value) + "'; there are tiny, small, medium, large");
    } else {
      bool known = false;
      for (const auto& number : numbers) {
        if (flag != number.flag) continue;
        known = true;
        const auto parsed = ParseNumber(value, number.low, number.high);
        if (!parsed) {
          return Refuse(flag + " takes a whole number from " + std::to_string(number.low) + " to " +
                        std::to_string(number.high) + ", not '" + value + "'");
        }
        *number.value = *parsed;
      }
      if (!known) return Refuse("no flag '" + flag + "'");
    }
  }
  flags->batch = batch != 0 ? static_cast<int64_t>(batch) : flags->preset->batch;
  flags->threads = static_cast<int>(threads);
  flags->world = static_cast<uint32_t>(world);
  flags->rank = static_cast<uint32_t>(rank);
  if (rank >= world) return Refuse("--rank must be below --world");
  if (world > 1 && flags->rendezvous.empty()) return Refuse("--world above 1 needs --rendezvous DIR");
  if (flags->data.empty()) flags->data = DefaultData();
  if (flags->data.empty()) return Refuse("the default text is not there; run ./dev setup, or give --data FILE");
  return -1;
}

}  // namespace gpt
