// The session of a rank that Locum runs, over the worker library.
#pragma once

#include <memory>
#include <string>

#include "flags.h"
#include "session.h"

namespace gpt {

// Throws locum::Error when the node cannot be reached or refuses this program.
std::unique_ptr<Session> OpenLocum(const Flags& flags, const std::string& fingerprint);

}  // namespace gpt
