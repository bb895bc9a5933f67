// tarn store repair: repairs a store that a daemon refuses, so that it can be opened. No daemon may be running on it.
#pragma once

#include <ostream>
#include <string>

#include "daemon/cli/client.hpp"

namespace tarn {

struct RepairOptions {
    bool salvage_journal = false;
    int yes = 0;  // how many of its questions are answered already
};

// Asks twice before it gives up anything, on the terminal.
Outcome<Json> repair_stopped_store(const std::string& path, const RepairOptions& options);
void print_repaired(std::ostream& out, const Json& repaired);

}  // namespace tarn
