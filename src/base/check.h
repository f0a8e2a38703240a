// Checks of our own invariants. They stay on in release builds; what a peer, a user or a disk sends is
// an error value instead.
#pragma once

namespace locum {

// Writes "file:line: check failed: what" to standard error in one write and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace locum

#define LOCUM_CHECK(cond) ((cond) ? static_cast<void>(0) : ::locum::CheckFailed(__FILE__, __LINE__, #cond))
