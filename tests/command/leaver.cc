// A training program that breaks the contract, in the way its argument says:
//   join  joins and ends          sit   joins and waits
//   loop  leaves the step loop and ends well, without locum_finish
//   fail  says that its first update has failed, and ends at once
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "locum/locum.h"

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  locum_options options{};
  options.struct_size = sizeof options;
  options.total_steps = 1000;
  locum_job* job = nullptr;
  if (locum_join(&options, &job) != LOCUM_OK) return 1;
  if (how == "join") return 0;
  if (how == "sit") ::sleep(60);
  double state = 0;
  if (locum_register_memory(job, "state", &state, sizeof state, nullptr) != LOCUM_OK) return 1;
  locum_step step{};
  step.struct_size = sizeof step;
  while (locum_next_step(job, &step) == 1) {
    if (step.regrouped) locum_connected(job);
    locum_enter_collective(job);
    if (locum_begin_update(job) != LOCUM_OK) continue;
    if (how == "fail") {
      locum_fail_update(job, "the moments are not finite");
      ::_exit(1);
    }
    state += 1;
    locum_end_update(job);
    if (how == "loop" && step.step == 9) std::_Exit(0);
  }
  return 0;
}
