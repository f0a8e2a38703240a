// The library's own threads: they take no signals, those are the program's.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace locum {

template <class F>
Result<std::thread> StartThread(const char* name, F body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> started = Internal("thread not started");
  try {
    started = std::thread(std::move(body));
    ::pthread_setname_np(started->native_handle(), name);
  } catch (const std::system_error& e) {
    started = Internal(std::string("starting a thread: ") + e.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace locum
