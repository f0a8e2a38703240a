// What `locum run` shows: rank 0's output on standard output, events and progress on standard error. On a terminal the
// progress is one line at the bottom that is kept up to date; in a pipe it is a plain line now and then.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace locum {

class Display {
 public:
  Display();
  ~Display();
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  void Event(const std::string& text);
  void Message(const std::string& text);  // "locum: text"
  void Output(std::string_view bytes);    // of rank 0, as they are
  void Progress(const std::string& text);
  void Clear();  // takes the progress line away
  // Whether output of rank 0 was lost because it could not be written. Not where nobody reads it any more.
  bool LostOutput() const { return lost_output_; }

 private:
  void Line(const std::string& text);
  void Draw();

  const bool terminal_;  // standard error is one
  const bool shared_;    // standard output is one too, so that the line must make room for it
  bool drawn_ = false;
  bool output_over_ = false, lost_output_ = false;
  bool output_open_ = false;  // rank 0's last output did not end its line
  std::string progress_, shown_;
  std::chrono::steady_clock::time_point plain_at_{};
};

}  // namespace locum
