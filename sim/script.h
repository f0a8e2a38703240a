// What can be done to a simulated cluster, as lines of text: one vocabulary for scenarios, random faults, and what a person
// types to repeat a failure.
//
//   kill-node NODE, start-node, add-node, kill-agent, sleep-agent, wake-agent, leave-node, cut-link, cut-peers,
//   cut-coordinator, cut-out, cut-in, heal-link, failback
//   kill-rank RANK, stick-rank, tear-rank, stop-rank, hang-rank, sleep-rank, wake-rank, deafen-rank, break-rank, spoil-rank
//   exit-rank RANK STATUS, fail-program RANK STEP, deafen-program
//   kill-coordinator, crash-coordinator EFFECTS, start-coordinator, pause-coordinator MS, cut-coordinators
//   fail-store, mend-store, lose-database, keep-database, restore-database, adopt
#pragma once

#include <string>
#include <vector>

#include "sim/cluster.h"

namespace locum::sim {

struct Done {
  bool applies = false;  // false: nothing was there to do it to
  Status answer;         // of failback and adopt
};

// Whether `line` is one of the above; a message when it is not.
std::string CheckLine(const std::string& line);
// `line` was checked.
Done Do(Cluster* cluster, const std::string& line);

}  // namespace locum::sim
