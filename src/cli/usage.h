// What is said about flags and words that cannot be taken: which, for what, and what to do.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace locum {

// `words` are the command line up to "--", without the program's name. Empty: nothing to say before parsing.
std::string EmptyWord(const std::vector<std::string>& words);

// `app` is the subcommand that was named, or the program. `separated`: there is a "--" on the command line.
std::string ExplainParseError(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& words,
                              bool separated);

}  // namespace locum
