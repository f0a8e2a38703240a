// What the command's exit status means. `run` and `coordinator` end with the job's own status; these are the others.
#pragma once

namespace locum {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // it was asked rightly and did not work
inline constexpr int kExitUsage = 2;   // flags, config, DIR, port: something for the user to change
// 80 and 81, of a job whose state is lost or whose program fails by itself, are the core's (core/coordinator.h).
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitInterrupted = 130;  // SIGINT
inline constexpr int kExitTerminated = 143;   // SIGTERM

}  // namespace locum
