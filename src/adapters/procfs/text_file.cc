#include "adapters/procfs/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>

namespace locum {
namespace {

constexpr size_t kMaxBytes = 1u << 20;

}  // namespace

std::optional<std::string> ReadTextFile(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char part[16384];
  ssize_t got = 0;
  while (text.size() < kMaxBytes && (got = ::read(fd, part, sizeof part)) > 0) {
    text.append(part, static_cast<size_t>(got));
  }
  ::close(fd);
  if (got < 0) return std::nullopt;
  return text;
}

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

std::string_view NextLine(std::string_view* text) {
  size_t end = text->find('\n');
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

std::optional<uint64_t> ParseNumber(std::string_view word) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

uint64_t PerSecond(uint64_t before, uint64_t now, int64_t elapsed_ns) {
  if (now <= before || elapsed_ns <= 0) return 0;
  __extension__ using Wide = unsigned __int128;
  Wide rate = Wide{now - before} * 1'000'000'000u / static_cast<uint64_t>(elapsed_ns);
  return rate > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(rate);
}

}  // namespace locum
