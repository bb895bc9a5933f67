// Experiments: the simulated workloads, and their tables. The same seed gives the same tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tests/sim/performance/costs.hpp"

namespace tarn::sim_performance {

struct Experiment {
    const char* name;
    const char* title;
    const char* setting;
    std::string (*table)(uint64_t seed);  // Markdown
};

std::span<const Experiment> experiments();

}  // namespace tarn::sim_performance
