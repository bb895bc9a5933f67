// The runs that failed once, as tests/sim/protocol/failed_runs lists them: the simulators begin with them.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/protocol/runner.hpp"

namespace tarn::sim {

// Parses NAME=VALUE,... of a scenario into `run`. False: no such name.
bool parse_set(const std::string& text, Case& run);

// Each line has the options of one run, then # and the failure. False: the file cannot be read, or is no such list.
bool read_known_runs(const std::string& file_name, std::vector<Case>& cases);

}  // namespace tarn::sim
