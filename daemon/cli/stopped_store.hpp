// tarn store inspect, check and repair, for a store that no daemon has open. Only the last one writes to it.
#pragma once

#include <ostream>
#include <string>

#include "daemon/cli/client.hpp"

namespace tarn {

struct RepairOptions {
    bool salvage_journal = false;
    int yes = 0;  // how many of its questions are answered already
};

Outcome<Json> inspect_stopped_store(const std::string& path);
// Fails when a page does not match its checksum.
Outcome<Json> check_stopped_store(const std::string& path);
void print_store(std::ostream& out, const Json& store);
// Makes a store that a daemon refuses one that can be opened. Asks twice before it gives up anything, on the terminal.
Outcome<Json> repair_stopped_store(const std::string& path, const RepairOptions& options);
void print_repaired(std::ostream& out, const Json& repaired);

}  // namespace tarn
