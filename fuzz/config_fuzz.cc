// Any bytes as a config file: an error value with a place, or a config.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "adapters/config/config.h"
#include "seeds.h"

std::vector<std::string> FuzzSeeds() {
  return {"[job]\nnodes = 4\nspares = 1\ncommand = [\"python3\", 'train.py']\ndir = \"/d/\xc3\xa9\"  # \xc3\xa9\n",
          "[timeouts]\nheartbeat = \"50ms\"\nsilence = \"2s\"\n[run]\nrestart_nodes = false\nrestart_delay = \"1m\"\n",
          "[coordinator]\nlisten = \"[::1]:7000\"\nport = 0x10\n[agent]\nname = \"\"\"n\\\n1\"\"\"\n",
          "job = { nodes = 2, seed = 9223372036854775807 }\nagent.name = 'x'\n", "\xcd\x87"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto config = locum::ParseConfig(std::string(reinterpret_cast<const char*>(data), size), "f");
  if (!config.ok()) {
    if (config.status().message().rfind("f:", 0) != 0) std::abort();
    return 0;
  }
  locum::Status ignored = locum::CheckConfig(*config);
  return 0;
}
