// What holds on hosts at rest: nobody waits, every frame is free, held or home's, and hosts agree on who holds what.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/hosts/host.hpp"

namespace tarn::hosts_sim {

// Of hosts that are linked, whose stores are good and whose clients do nothing. flushed: since the last write.
// Empty, or what is wrong.
std::string explain_unrest(const std::vector<std::unique_ptr<SimHost>>& hosts, bool flushed);

}  // namespace tarn::hosts_sim
