// Children that the program forks without exec (data loaders) must not speak for the worker: in them every call
// into the library fails, and the descriptors named here are closed, so that the worker's end is seen by its node
// though such a child still lives for a moment.
#pragma once

namespace locum {

// Once per process; later calls do nothing.
void InstallForkGuard();
// True in a child that was forked after InstallForkGuard.
bool InForkedChild();
// Up to 64 descriptors; -1 is ignored.
void CloseInForkedChildren(int fd);
void ForgetInForkedChildren(int fd);

}  // namespace locum
