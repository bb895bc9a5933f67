// Shrink: reduces a failing run: fewer hosts, pages, clients, operations and faults, as long as some seed still fails.
#pragma once

#include "tests/sim/protocol/runner.hpp"

namespace tarn::sim {

// Ends after about this time, and returns the smallest run found so far.
Failed shrink(const Failed& failed, unsigned mutant, double seconds_max = 20);

}  // namespace tarn::sim
