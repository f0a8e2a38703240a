// gpt: trains a small language model, as one rank of a job that Locum keeps running when nodes fail, or alone.
//
// All state that a recovery carries over is registered (state.h). Everything else that a step uses is a function of
// the step: the batch of its data position, the random numbers of its seed.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "flags.h"
#include "trainer.h"

int main(int argc, char** argv) {
  gpt::Flags flags;
  if (const int status = gpt::ParseFlags(argc, argv, &flags); status >= 0) return status;
  std::signal(SIGPIPE, SIG_IGN);  // a broken connection is an error value of the collective
  int status = 0;
  try {
    gpt::Train(flags);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpt: %s\n", e.what());
    status = 1;
  }
  std::fflush(nullptr);
  _exit(status);  // without the destructors of static objects: an abandoned collective may still use them
}
