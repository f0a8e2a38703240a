// The whole run of one worker: load, join, train, report.
#pragma once

#include "flags.h"

namespace gpt {

// Trains to the last step and, on the rank that is 0 then, reports. Throws std::exception.
void Train(const Flags& flags);

}  // namespace gpt
