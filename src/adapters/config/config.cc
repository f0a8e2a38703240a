#include "adapters/config/config.h"

#include <charconv>
#include <fstream>
#include <sstream>

#include "adapters/config/keys.h"
#include "adapters/config/toml.h"

namespace locum {
namespace {

constexpr Duration kLongestDuration = std::chrono::hours(24 * 30);
constexpr uint64_t kMaxConfigBytes = 1u << 20;

struct Unit {
  std::string_view name;
  int64_t ns;
};
constexpr Unit kUnits[] = {{"ns", 1},           {"us", 1000},         {"ms", 1000000},
                           {"s", 1000000000ll}, {"m", 60000000000ll}, {"h", 3600000000000ll}};

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

const char* TypeName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string: return "a text";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a number with a fraction";
    case toml::node_type::boolean: return "true or false";
    case toml::node_type::array: return "a list";
    case toml::node_type::table: return "a table";
    default: return "a date or time";
  }
}

Status WrongType(const char* want, const toml::node& node) {
  return Invalid(std::string("must be ") + want + ", is " + TypeName(node));
}

Status SetInteger(const U32Field& field, int64_t v, Config* config) {
  if (v < field.least || v > field.most) {
    return Invalid(std::to_string(v) + " is not between " + std::to_string(field.least) + " and " +
                   std::to_string(field.most));
  }
  config->*field.to = static_cast<uint32_t>(v);
  return OkStatus();
}

// An empty text would be taken for a key that was not set.
Status SetText(const TextField& field, const std::string& text, Config* config) {
  if (text.empty()) return Invalid("is empty; give a value, or leave it out");
  config->*field.to = text;
  return OkStatus();
}

Status SetList(const ListField& field, const toml::node& node, Config* config) {
  constexpr const char* kWant = "a list of texts, as in [\"python3\", \"train.py\"]";
  const toml::array* list = node.as_array();
  if (list == nullptr) return WrongType(kWant, node);
  std::vector<std::string> words;
  for (const toml::node& item : *list) {
    auto v = item.value_exact<std::string>();
    if (!v) {
      return Invalid(std::string("must be ") + kWant + "; its entry " + std::to_string(words.size() + 1) + " is " +
                     TypeName(item));
    }
    words.push_back(*v);
  }
  config->*field.to = std::move(words);
  return OkStatus();
}

Status SetDuration(const std::string& text, Duration* to) {
  auto duration = ParseDuration(text);
  if (!duration.ok()) return duration.status();
  *to = *duration;
  return OkStatus();
}

constexpr const char* kDurationType = "a duration such as \"250ms\" or \"5s\"";

Status SetFromNode(const Field& field, const toml::node& node, Config* config) {
  return std::visit(Overload{
                        [&](const U32Field& f) {
                          auto v = node.value_exact<int64_t>();
                          return v ? SetInteger(f, *v, config) : WrongType("an integer", node);
                        },
                        [&](const U64Field& f) {
                          auto v = node.value_exact<int64_t>();
                          if (!v) return WrongType("an integer", node);
                          if (*v < 0) return Invalid(std::to_string(*v) + " is negative");
                          config->*f.to = static_cast<uint64_t>(*v);
                          return OkStatus();
                        },
                        [&](const BoolField& f) {
                          auto v = node.value_exact<bool>();
                          if (!v) return WrongType("true or false", node);
                          config->*f.to = *v;
                          return OkStatus();
                        },
                        [&](const TextField& f) {
                          auto v = node.value_exact<std::string>();
                          return v ? SetText(f, *v, config) : WrongType("a text", node);
                        },
                        [&](const ListField& f) { return SetList(f, node, config); },
                        [&](const DurationField& f) {
                          auto v = node.value_exact<std::string>();
                          return v ? SetDuration(*v, &(config->*f.to)) : WrongType(kDurationType, node);
                        },
                        [&](const TimeoutField& f) {
                          auto v = node.value_exact<std::string>();
                          return v ? SetDuration(*v, &(config->timeouts.*f.to)) : WrongType(kDurationType, node);
                        },
                    },
                    field);
}

Status SetFromText(const Field& field, const std::string& text, Config* config) {
  auto integer = [&](auto* v) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *v);
    return error == std::errc() && end == text.data() + text.size();
  };
  return std::visit(Overload{
                        [&](const U32Field& f) {
                          int64_t v = 0;
                          return integer(&v) ? SetInteger(f, v, config) : Invalid("'" + text + "' is not an integer");
                        },
                        [&](const U64Field& f) {
                          uint64_t v = 0;
                          if (!integer(&v)) return Invalid("'" + text + "' is not an integer of 0 or more");
                          config->*f.to = v;
                          return OkStatus();
                        },
                        [&](const BoolField& f) {
                          if (text != "true" && text != "false") return Invalid("'" + text + "' is not true or false");
                          config->*f.to = text == "true";
                          return OkStatus();
                        },
                        [&](const TextField& f) { return SetText(f, text, config); },
                        [&](const ListField&) { return Invalid("cannot be set by a flag"); },
                        [&](const DurationField& f) { return SetDuration(text, &(config->*f.to)); },
                        [&](const TimeoutField& f) { return SetDuration(text, &(config->timeouts.*f.to)); },
                    },
                    field);
}

Status UnknownKey(const std::string& path) {
  std::string_view nearest = NearestKey(path);
  return Invalid("unknown key '" + path + "'" +
                 (nearest.empty() ? std::string() : "; did you mean '" + std::string(nearest) + "'?"));
}

bool IsSection(std::string_view name) {
  for (const Key& key : Keys()) {
    if (key.path.substr(0, key.path.find('.')) == name) return true;
  }
  return false;
}

}  // namespace

Result<Duration> ParseDuration(const std::string& text) {
  int64_t count = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (error == std::errc() && count >= 0) {
    for (const Unit& u : kUnits) {
      if (u.name != unit) continue;
      if (count > kLongestDuration.count() / u.ns) return Invalid("'" + text + "' is longer than 30 days");
      return Duration(count * u.ns);
    }
  }
  return Invalid("'" + text + "' is not a duration such as \"250ms\", \"5s\" or \"2m\"");
}

std::string FormatDuration(Duration duration) {
  int64_t ns = duration.count();
  if (ns == 0) return "0s";
  for (auto it = std::rbegin(kUnits); it != std::rend(kUnits); ++it) {
    if (ns % it->ns == 0) return std::to_string(ns / it->ns) + std::string(it->name);
  }
  return std::to_string(ns) + "ns";
}

Result<Config> ParseConfig(const std::string& text, const std::string& file) {
  toml::parse_result parsed = toml::parse(text, file);
  auto at = [&](const toml::source_region& where) { return file + ":" + std::to_string(where.begin.line); };
  if (!parsed) {
    return Invalid(at(parsed.error().source()) + ": " + std::string(parsed.error().description()));
  }
  Config config;
  for (const auto& [section, node] : parsed.table()) {
    std::string section_name(section.str());
    const toml::table* table = node.as_table();
    if (!IsSection(section_name)) return UnknownKey(section_name).Annotate(at(section.source()));
    if (table == nullptr) return WrongType("a table", node).Annotate(at(section.source()) + ": " + section_name);
    for (const auto& [name, value] : *table) {
      std::string path = section_name + "." + std::string(name.str());
      std::string where = at(name.source());
      const Key* key = FindKey(path);
      if (key == nullptr) return UnknownKey(path).Annotate(where);
      LOCUM_RETURN_IF_ERROR(SetFromNode(key->field, value, &config).Annotate(where + ": " + path));
      config.origin[path] = where;
    }
  }
  return config;
}

Result<Config> LoadConfig(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Invalid("cannot open the config file " + path);
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Invalid("cannot read the config file " + path);
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxConfigBytes) return Invalid("the config file " + path + " is larger than 1 MiB");
  return ParseConfig(text, path);
}

Status SetFromFlag(const std::string& key, const std::string& flag, const std::string& value, Config* config) {
  const Key* found = FindKey(key);
  LOCUM_CHECK(found != nullptr);
  LOCUM_RETURN_IF_ERROR(SetFromText(found->field, value, config).Annotate(flag));
  config->origin[key] = flag;
  return OkStatus();
}

}  // namespace locum
