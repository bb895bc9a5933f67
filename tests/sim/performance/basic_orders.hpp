// BasicOrders: how many messages and one-way delays an access takes on an idle cluster of five.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/performance/load.hpp"

namespace tarn::sim_performance {

// An access by a host; with evicts, the host gives the page up instead.
struct Access {
    HostId host;
    Operation::Kind kind;
    bool evicts = false;
};

struct BasicOrder {
    const char* name;
    std::vector<Access> accesses;  // one after the other; the last one is counted
    // What it takes.
    uint64_t messages;  // that the access waits for
    uint64_t aside;     // others
    uint64_t delays;
};

const std::vector<BasicOrder>& basic_orders();

struct Counted {
    uint64_t messages = 0;
    uint64_t aside = 0;
    uint64_t delays = 0;
    auto operator<=>(const Counted&) const = default;
};
Counted count(const BasicOrder& order);

std::string basic_orders_table(uint64_t seed);

}  // namespace tarn::sim_performance
