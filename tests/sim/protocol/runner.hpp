// Runner: runs seeds in separate processes, so that a failed assertion or an endless loop is only a failed seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/protocol/coverage.hpp"
#include "tests/sim/protocol/scenario.hpp"

namespace tarn::sim {

// One run: a seed, and the scenario numbers that were set by hand.
struct Case {
    uint64_t seed = 0;
    bool with_faults = true;
    std::vector<std::pair<std::string, unsigned>> set;

    Scenario scenario() const;
    // The options that replay it: --seed 7 --set hosts=2,pages=1
    std::string options() const;
};

struct Failed {
    Case run;
    std::string reason;
};

struct Totals {
    uint64_t runs = 0;
    uint64_t events = 0;
    uint64_t operations = 0;
    uint64_t operations_min = ~uint64_t{0};  // of one run
    double cpu_seconds = 0;
    Coverage coverage;
    std::vector<Failed> failed;
    void add(const Totals& other);
};

struct Batch {
    std::vector<Case> cases;
    size_t failed_max = 10;
    unsigned jobs = 1;
    unsigned seconds_max = 600;  // of CPU, for one process
    unsigned mutant = 0;         // 0: the protocol as it is
    unsigned twice_every = 0;    // one run in this many is run twice, and must be the same
    bool stops_at_first_failure() const { return failed_max == 1; }
};

Totals run_batch(const Batch& batch);

// Set by the programs whose protocol has mutants.
extern void (*choose_mutant)(unsigned mutant);

}  // namespace tarn::sim
