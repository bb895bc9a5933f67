// tarn store inspect and tarn store check, for a store that no daemon has open. They never write to it.
#pragma once

#include <ostream>
#include <string>

#include "daemon/cli/client.hpp"
#include "utils/result.hpp"

namespace tarn {

// Why a store's file could not be used, as the user is told.
std::unexpected<Failure> refuse_store(const Error& error);
Outcome<Json> inspect_stopped_store(const std::string& path);
// Fails when a page does not match its checksum.
Outcome<Json> check_stopped_store(const std::string& path);
void print_store(std::ostream& out, const Json& store);

}  // namespace tarn
