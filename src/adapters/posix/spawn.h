// Starting a program: fork, set the child up, exec; a failure of any of it comes back as a text for people.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace locum {

struct Program {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value", complete
  int output_fd = -1;                    // becomes standard output and error; -1: they stay
  int kept_fd = -1;                      // the one descriptor beyond the standard ones that the program gets
  sigset_t mask{};                       // its signal mask
  bool restore_sigpipe = false;          // SIGPIPE is ignored here, and was not by whoever started us
};

struct SpawnError {
  int32_t status = 126;  // as a shell gives it: 127 not found, 126 not executable
  std::string what;      // "cannot execute 'x': No such file or directory"
};

// The program becomes a session of its own with /dev/null as input, and dies with the calling thread. Blocks until
// exec has succeeded or failed. Only for processes without threads. Returns its pid, or why it does not run.
std::optional<SpawnError> Spawn(const Program& program, pid_t* pid);

// Closes every descriptor but the standard ones and `kept`.
void CloseAllBut(std::vector<int> kept);

// The environment of this process with some variables set.
std::vector<std::string> EnvironmentWith(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace locum
