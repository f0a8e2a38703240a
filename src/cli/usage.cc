#include "cli/usage.h"

#include <algorithm>

#include "adapters/config/keys.h"

namespace locum {
namespace {

constexpr size_t kNear = 3;  // edits; further away a name is no help

bool IsFlag(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// "--nodes" of "--nodes=4".
std::string FlagOf(const std::string& word) { return word.substr(0, word.find('=')); }

// "locum run".
std::string NameOf(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : app.get_parent()->get_name() + " " + app.get_name();
}

std::string Hint(const CLI::App& app) { return "; see '" + NameOf(app) + " --help'"; }

std::string NearestFlag(const CLI::App& app, const std::string& flag) {
  std::string best;
  size_t best_distance = kNear;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || option->get_positional()) continue;
    const std::string name = option->get_name();
    if (const size_t distance = EditDistance(flag.substr(0, 200), name); distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

// The first word that no flag or place has taken.
std::string Leftover(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining(true);
  const auto flag = std::find_if(left.begin(), left.end(), [](const std::string& word) { return word != "--"; });
  return flag == left.end() ? "" : *flag;
}

std::string Unexpected(const CLI::App& app, const std::vector<std::string>& words, bool separated) {
  const std::string word = Leftover(app);
  const std::string& name = app.get_name();
  if (IsFlag(word)) {
    const std::string near = NearestFlag(app, FlagOf(word));
    return NameOf(app) + " has no flag " + FlagOf(word) + (near.empty() ? "" : " (did you mean " + near + "?)") +
           Hint(app);
  }
  if (!separated && (name == "run" || name == "coordinator")) {
    return "unexpected word '" + word + "'; put -- in front of the command: " + NameOf(app) +
           " [OPTIONS] -- COMMAND...";
  }
  if (words.empty() || name == "locum") return "there is no subcommand '" + word + "'" + Hint(app);
  return NameOf(app) + " does not take the word '" + word + "'" + Hint(app);
}

// A flag too often, or without its value; `flag` as the library calls it.
std::string Miscounted(const std::string& flag, const CLI::App& app, const std::vector<std::string>& words) {
  const auto times = std::count_if(words.begin(), words.end(), [&](const std::string& w) { return FlagOf(w) == flag; });
  if (times > 1) return flag + " is given " + std::to_string(times) + " times; give it once" + Hint(app);
  const CLI::Option* option = app.get_option_no_throw(flag);
  const std::string type = option == nullptr ? "" : option->get_type_name();
  return flag + " needs a value" + (type.empty() ? "" : ": " + flag + " " + type) + Hint(app);
}

}  // namespace

std::string EmptyWord(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const bool bare = IsFlag(words[i]) && words[i].back() == '=';
    if (!words[i].empty() && !bare) continue;
    if (bare) return FlagOf(words[i]) + ": is empty; give a value, or leave it out";
    if (i > 0 && IsFlag(words[i - 1])) return words[i - 1] + ": is empty; give a value, or leave it out";
    return "an empty word; give a value, or leave it out";
  }
  return "";
}

std::string ExplainParseError(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& words,
                              bool separated) {
  const std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return Unexpected(app, words, separated);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return Miscounted(what.substr(0, what.find_first_of(": ")), app, words);
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const std::string first = what.substr(0, what.find(' ')), second = what.substr(what.rfind(' ') + 1);
    return first + " and " + second + " exclude each other; give one of them" + Hint(app);
  }
  // "A subcommand is required" comes also where the first word is none.
  if (app.get_parent() == nullptr) {
    for (const std::string& word : words) {
      if (IsFlag(word)) return NameOf(app) + " has no flag " + FlagOf(word) + Hint(app);
      return "there is no subcommand '" + word + "'" + Hint(app);
    }
  }
  return what + Hint(app);
}

}  // namespace locum
