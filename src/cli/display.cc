#include "cli/display.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace locum {
namespace {

constexpr auto kPlainPause = std::chrono::seconds(5);

constexpr int kFullPauseMs = 100;

// Why not all of it was written; 0 when it was. The logs have it all.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    // A pipe that another process has made non-blocking: wait for its reader, as a blocking write does.
    pollfd room{fd, POLLOUT, 0};
    ::poll(&room, 1, kFullPauseMs);
  }
  return 0;
}

size_t Width() {
  winsize size{};
  return ::ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79;
}

bool IsTerminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && (term == nullptr || std::strcmp(term, "dumb") != 0);
}

}  // namespace

Display::Display() : terminal_(IsTerminal(2)), shared_(terminal_ && ::isatty(1) == 1) {}
Display::~Display() { Clear(); }

void Display::Clear() {
  if (drawn_) WriteAll(2, "\r\x1b[K");
  drawn_ = false;
}

void Display::Draw() {
  // Not over a line of rank 0's output that is still being written.
  if (!terminal_ || progress_.empty() || (shared_ && output_open_)) return;
  WriteAll(2, "\r\x1b[K" + progress_.substr(0, Width()));
  drawn_ = true;
}

void Display::Line(const std::string& text) {
  Clear();
  if (shared_ && output_open_) {
    WriteAll(1, "\n");
    output_open_ = false;
  }
  WriteAll(2, text + "\n");
  Draw();
}

void Display::Event(const std::string& text) { Line(text); }
void Display::Message(const std::string& text) { Line("locum: " + text); }

void Display::Output(std::string_view bytes) {
  if (bytes.empty() || output_over_) return;
  if (shared_) Clear();
  if (int error = WriteAll(1, bytes); error != 0) {
    // A reader that has gone has had enough; else output is lost that somebody wants.
    output_over_ = true;
    if (error == EPIPE) return;
    lost_output_ = true;
    Message(std::string("cannot write rank 0's output to standard output: ") + std::strerror(error) +
            "; no more of it is written there, and training goes on; the output is whole in the log of rank 0's "
            "worker (locum status)");
    return;
  }
  output_open_ = bytes.back() != '\n';
  if (shared_) Draw();
}

void Display::Progress(const std::string& text) {
  if (text == progress_) return;
  progress_ = text;
  if (terminal_) {
    Draw();
    return;
  }
  auto now = std::chrono::steady_clock::now();
  if (now < plain_at_ || progress_ == shown_) return;
  plain_at_ = now + kPlainPause;
  shown_ = progress_;
  WriteAll(2, progress_ + "\n");
}

}  // namespace locum
