// The notes that an agent leaves for the next one, as bytes that their keeper holds for them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "node/node_core.h"

namespace locum {

std::string EncodeNotes(const node::Notes& notes);
// No bytes are the notes of nobody.
Result<node::Notes> DecodeNotes(std::string_view bytes);

}  // namespace locum
