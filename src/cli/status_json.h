// `locum status`: the JSON whose names are stable, and the table made from it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/coordinator.h"

namespace locum {

using Json = nlohmann::ordered_json;

Json StatusJson(const ClusterView& view);
// What is known without a coordinator: `last` is DIR/status.json when it could be read, else null.
Json StatusJson(const PersistentState& stored, const Json& last);
std::string StatusTable(const Json& status, const std::string& dir = "");
std::string DumpJson(const Json& json, int indent);

}  // namespace locum
