// Reading the small files of /proc and /sys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace locum {

// At most 1 MiB; nothing when it cannot be read.
std::optional<std::string> ReadTextFile(const std::string& path);

// The words of a line, by blanks and tabs.
std::vector<std::string_view> Words(std::string_view line);

// Takes the first line off `text`, without its newline.
std::string_view NextLine(std::string_view* text);

// Digits only, and no overflow.
std::optional<uint64_t> ParseNumber(std::string_view word);

// What a counter grew by in a second; 0 when it was reset or no time has passed.
uint64_t PerSecond(uint64_t before, uint64_t now, int64_t elapsed_ns);

}  // namespace locum
