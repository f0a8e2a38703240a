// Faults at chosen moments, for the tests of Locum; a program of one's own needs nothing of this.
//
//   LOCUM_MINIMAL_HOOK      RANK:STEP:PLACE:ACTION[:always], more of them after semicolons
//   LOCUM_MINIMAL_HOOK_DIR  a directory. Hook i (from 0) acts once: it makes the file i.acted, unless that is there
//
//   PLACE   forward     before the step's work                ACTION  kill   SIGKILL to itself
//           collective  inside the all-reduce                         stop   SIGSTOP to itself
//           reduced     behind it, before the update                  segv   SIGSEGV to itself
//           update      half of the state is updated                  throw  throws an exception
//           updated     all of it, before it is committed             exit0, exit3
//           committed   right after the commit                        hold   waits for i.hold, which it makes before
//           finish      before Finish, at the last state                     i.acted, to be taken away
#pragma once

#include <cstdint>
#include <string>
#include <vector>

class Hooks {
 public:
  // What the environment asks for; ends the program when it cannot be understood.
  static Hooks FromEnvironment();
  void At(const char* place, uint32_t rank, uint64_t step) const;

 private:
  struct Hook {
    uint32_t rank;
    uint64_t step;
    std::string place, action;
    bool always;
  };
  void Act(const Hook& hook, const std::string& file) const;

  std::vector<Hook> hooks_;
  std::string dir_;
};
