// What an agent reads of its machine.
#pragma once

#include "base/cluster.h"

namespace locum {

class UsageSensor {
 public:
  virtual ~UsageSensor() = default;
  // Rates are over the time since the call before; 0 at the first. What cannot be read stays 0. It may block where
  // the node's file system does, so a thread of its own calls it.
  virtual Usage Read() = 0;
};

}  // namespace locum
