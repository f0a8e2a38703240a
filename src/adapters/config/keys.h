// The table of keys: their names, types and places in Config.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "adapters/config/config.h"

namespace locum {

struct U32Field {
  uint32_t Config::*to;
  uint32_t least, most;
};
struct U64Field {
  uint64_t Config::*to;
};
struct BoolField {
  bool Config::*to;
};
struct TextField {
  std::string Config::*to;
};
struct ListField {
  std::vector<std::string> Config::*to;
};
struct DurationField {
  Duration Config::*to;
};
struct TimeoutField {
  Duration Timeouts::*to;
};
using Field = std::variant<U32Field, U64Field, BoolField, TextField, ListField, DurationField, TimeoutField>;

struct Key {
  std::string_view path;  // "section.name"
  Field field;
};

std::span<const Key> Keys();
const Key* FindKey(std::string_view path);
// How many letters must be put in, taken out or changed.
size_t EditDistance(std::string_view a, std::string_view b);
// The key that a misspelt one most likely means; empty when none is near.
std::string_view NearestKey(std::string_view path);

}  // namespace locum
