#include "adapters/posix/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "adapters/posix/owned_fd.h"

extern char** environ;

namespace locum {
namespace {

enum class Stage : int32_t { kDescriptors, kExec };
struct Failure {
  Stage stage;
  int32_t error;
};

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

[[noreturn]] void Fail(int pipe, Stage stage) {
  Failure failure{stage, errno};
  [[maybe_unused]] ssize_t written = ::write(pipe, &failure, sizeof failure);
  ::_exit(127);
}

[[noreturn]] void BecomeProgram(const Program& program, pid_t parent, int pipe, char** argv, char** envp) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  ::setsid();
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, 0) < 0) Fail(pipe, Stage::kDescriptors);
  if (program.output_fd >= 0 && (::dup2(program.output_fd, 1) < 0 || ::dup2(program.output_fd, 2) < 0)) {
    Fail(pipe, Stage::kDescriptors);
  }
  if (::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0) Fail(pipe, Stage::kDescriptors);
  if (program.kept_fd >= 0 && ::fcntl(program.kept_fd, F_SETFD, 0) != 0) Fail(pipe, Stage::kDescriptors);
  if (program.restore_sigpipe) ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &program.mask, nullptr);
  ::execvpe(argv[0], argv, envp);
  Fail(pipe, Stage::kExec);
}

SpawnError Describe(const Failure& failure, const std::string& file) {
  std::string error = std::strerror(failure.error);
  if (failure.stage == Stage::kDescriptors) return {126, "cannot set up the process for '" + file + "': " + error};
  return {failure.error == ENOENT ? 127 : 126, "cannot execute '" + file + "': " + error};
}

}  // namespace

std::optional<SpawnError> Spawn(const Program& program, pid_t* pid) {
  const std::string& file = program.command.front();
  std::vector<char*> argv = Pointers(program.command);
  std::vector<char*> envp = Pointers(program.environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return SpawnError{126, "cannot start '" + file + "': no pipe: " + std::strerror(errno)};
  }
  OwnedFd read_end(ends[0]), write_end(ends[1]);
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0) return SpawnError{126, "cannot start '" + file + "': no process: " + std::strerror(errno)};
  if (child == 0) BecomeProgram(program, parent, write_end.get(), argv.data(), envp.data());
  write_end.Reset();
  Failure failure;
  ssize_t got;
  do {
    got = ::read(read_end.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof failure) {  // closed by exec
    *pid = child;
    return std::nullopt;
  }
  ::waitpid(child, nullptr, 0);
  return Describe(failure, file);
}

void CloseAllBut(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned next = 3;
  for (int fd : kept) {
    if (fd < 3) continue;
    unsigned keep = static_cast<unsigned>(fd);
    if (keep > next) ::close_range(next, keep - 1, 0);
    next = keep + 1;
  }
  ::close_range(next, ~0u, 0);
}

std::vector<std::string> EnvironmentWith(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text(*entry);
    bool replaced = std::any_of(variables.begin(), variables.end(), [&](const auto& variable) {
      return text.size() > variable.first.size() && text.starts_with(variable.first) &&
             text[variable.first.size()] == '=';
    });
    if (!replaced) out.emplace_back(text);
  }
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

}  // namespace locum
