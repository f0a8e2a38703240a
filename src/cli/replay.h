// One input log stepped through again: the core is told what it was told and must answer what it answered.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/coordinator.h"
#include "replay.pb.h"

namespace locum {

struct Replay {
  bool verbose = false;
  std::unique_ptr<Coordinator> core;
  Time now{};  // of the newest input
  uint64_t inputs = 0, answers = 0;
  Duration took{};
  std::string error;
  std::string foreign;  // why this locum cannot tell

  // The next record of the log; false: no more of them.
  bool Take(std::string_view payload);

 private:
  bool TakeInput(const wire::CoreInput& input);
};

}  // namespace locum
