// The step log of one worker: what it did in every step it entered, in a file that is mapped, so that writing
// costs no system call. A header page, then records of 64 bytes in the order of entering. The file is
// preallocated and zero beyond the last record; a record is in use when `kind` is not 0.
//
//   header  offset 0: magic "LOCSTEP1", 8: u32 version, 12: u32 record bytes, 16: u64 worker incarnation,
//           24: u32 pid, 28: u32 slot, 32: u64 records dropped (disk full), zero to 4096
//   record  see StepRecord; little-endian; times are CLOCK_MONOTONIC nanoseconds, 0 for not reached
#pragma once

#include <cstdint>

namespace locum {

inline constexpr char kStepLogMagic[9] = "LOCSTEP1";
inline constexpr uint32_t kStepLogVersion = 1;
inline constexpr uint64_t kStepLogHeaderBytes = 4096;
inline constexpr uint32_t kStepRecordStep = 1;
// The rank took the result of `step` from another rank, in a recovery: it may never have committed that step itself.
// `entered_ns` is when the pulled state was verified; loss and the other times are 0.
inline constexpr uint32_t kStepRecordPulled = 2;

struct StepLogHeader {
  char magic[8];
  uint32_t version;
  uint32_t record_bytes;
  uint64_t worker;
  uint32_t pid;
  uint32_t slot;
  uint64_t dropped;
};

struct StepRecord {
  uint32_t kind;  // 0: unused; kStepRecordStep or kStepRecordPulled
  uint32_t rank;
  uint64_t step;  // the state it began from: the step makes step+1
  uint64_t generation;
  uint64_t loss_bits;     // the double given to ReportLoss; 0 when none was
  int64_t entered_ns;     // NextStep returned
  int64_t collective_ns;  // EnterCollective
  int64_t connected_ns;   // Connected, in the first step after a regroup
  int64_t committed_ns;   // the update is complete; 0: this attempt was not committed
};
static_assert(sizeof(StepRecord) == 64);

}  // namespace locum
