// A line of the history, for people.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace locum {

// Whether it is what a line of the history holds: an object with a name.
bool IsEvent(const nlohmann::ordered_json& e);

// "10:15:00.123  fault_detected  node-2, rank 1, generation 3, step 812: killed by SIGKILL (silence 5.0 ms)".
// A line that is not one of ours comes back as it is.
std::string EventText(const std::string& json_line);

// The job's exit status, when one of these lines tells how the job ended.
std::optional<int> ToldEnd(const std::string& json_lines);

// The lines of one history in their order. What is no fault because the job has ended is not shown as one: workers that
// were told to end say so, and streams that close then are left out (the text is empty). The JSON has it all.
class EventTeller {
 public:
  std::string Text(const std::string& json_line);

 private:
  bool over_ = false;  // the job has ended, and every worker that is left is told to
};

}  // namespace locum
