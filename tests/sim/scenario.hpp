// Scenario: what one seed decides before it runs: the world, the workload, and which faults are on (swarm testing).
#pragma once

#include <cstdint>

#include "tests/sim/random.hpp"

namespace tarn::sim {

struct Scenario {
    unsigned host_count;
    unsigned page_count;  // spread over the volumes
    unsigned volume_count;
    unsigned frame_count;  // per host
    unsigned clients_per_host;
    unsigned operations_per_client;

    // Per cent of operations; what is left are partial writes.
    unsigned read_percent;
    unsigned whole_write_percent;
    unsigned flush_percent;
    unsigned cancel_percent;

    unsigned evict_interval;  // virtual time between hints of one host, 0: never
    unsigned delay_max;
    unsigned slow_percent;  // messages that take far longer
    unsigned latch_max;
    unsigned store_delay_max;
    unsigned crash_interval;  // 0: never
    unsigned cut_interval;    // 0: never

    static Scenario draw(Random random, bool with_faults) {
        const auto on = [&] { return random.chance(50); };
        Scenario scenario{};
        scenario.host_count = static_cast<unsigned>(random.between(2, 5));
        scenario.page_count = static_cast<unsigned>(random.chance(40) ? 1 : random.between(1, 8));
        scenario.volume_count = static_cast<unsigned>(random.between(1, 3));
        scenario.frame_count = static_cast<unsigned>(on() ? random.between(3, 5) : 32);
        scenario.clients_per_host = static_cast<unsigned>(random.between(1, 4));
        scenario.operations_per_client = static_cast<unsigned>(random.between(10, 40));
        scenario.read_percent = static_cast<unsigned>(on() ? random.between(5, 90) : 40);
        scenario.whole_write_percent = static_cast<unsigned>(on() ? random.below(60) : 0);
        scenario.flush_percent = static_cast<unsigned>(on() ? random.between(2, 20) : 0);
        scenario.cancel_percent = static_cast<unsigned>(random.chance(25) ? 10 : 0);
        scenario.evict_interval = static_cast<unsigned>(on() ? random.between(20, 400) : 0);
        scenario.delay_max = static_cast<unsigned>(random.between(1, 100));
        scenario.slow_percent = static_cast<unsigned>(on() ? random.between(1, 20) : 0);
        scenario.latch_max = static_cast<unsigned>(on() ? random.between(1, 60) : 0);
        scenario.store_delay_max = static_cast<unsigned>(random.between(1, 200));
        const bool crashes = on();
        const bool cuts = on();
        const unsigned crash_interval = static_cast<unsigned>(random.between(300, 4000));
        const unsigned cut_interval = static_cast<unsigned>(random.between(200, 3000));
        scenario.crash_interval = with_faults && crashes ? crash_interval : 0;
        scenario.cut_interval = with_faults && cuts ? cut_interval : 0;
        return scenario;
    }
};

}  // namespace tarn::sim
