// World: what all parts of one run share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/checker/register_history.hpp"
#include "tests/sim/hosts/host.hpp"

namespace tarn::hosts_sim {

struct Counts {
    uint64_t seeds = 0;
    uint64_t turns = 0;
    uint64_t operations = 0;
    uint64_t failed_operations = 0;
    uint64_t flushes = 0;
    uint64_t cuts = 0;
    uint64_t pauses = 0;
    uint64_t power_cuts = 0;
    uint64_t kills = 0;
    uint64_t stops = 0;
    uint64_t failed_disks = 0;
};

#define X
struct World {
    World(uint64_t seed, Counts& of_all, InProcessNetwork::Courier& courier)
        : counts(of_all), kernel(seed), network(&courier) {}

    // A clock without ties.
    uint64_t tick() { return ++last_tick; }
    sim::Random& random() { return kernel.random(); }
    void fail(std::string what) {
        if (failure.empty()) failure = std::move(what);
    }

    bool disks_are_good() const { return failed_disks == 0; }

    Counts& counts;
    Kernel kernel;
    InProcessNetwork network;
    std::vector<std::unique_ptr<SimHost>> hosts;
    std::vector<checker::Loss> losses;
    unsigned failed_disks = 0;
    uint64_t last_tick = 0;
    uint64_t last_value = 0;
    unsigned last_session = 0;
    unsigned timeout_percent = 0;  // of the clients that wait for a host only for a while
    std::string failure;
};

}  // namespace tarn::hosts_sim
