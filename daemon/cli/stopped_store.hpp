// tarn store inspect and tarn store check: of a store that no daemon has open. They never write to it.
#pragma once

#include <ostream>
#include <string>

#include "daemon/cli/client.hpp"

namespace tarn {

Outcome<Json> inspect_stopped_store(const std::string& path);
// Fails when a page does not match its checksum.
Outcome<Json> check_stopped_store(const std::string& path);
void print_store(std::ostream& out, const Json& store);

}  // namespace tarn
