// Scenario: what a seed decides before the run: the world, the workload, and the faults that are on (swarm testing).
//
// Every number can be set by hand (--set hosts=2,pages=1), which is how a failing run is made smaller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "tests/sim/support/random.hpp"

namespace tarn::sim {

inline constexpr uint64_t last_page_number = 8 * 16;  // beyond every page of a scenario

struct Scenario {
    unsigned host_count = 2;
    unsigned page_count = 1;  // spread over the volumes
    unsigned volume_count = 1;
    unsigned frame_count = 32;  // per host
    unsigned clients_per_host = 1;
    unsigned operations_per_client = 1;

    // Per cent of operations; the rest are partial writes.
    unsigned read_percent = 40;
    unsigned whole_write_percent = 0;
    unsigned zero_percent = 0;  // of whole-page writes
    unsigned flush_percent = 0;
    unsigned cancel_percent = 0;
    unsigned no_space_percent = 0;  // of the times that the store is asked for room

    unsigned evict_interval = 0;  // virtual time between hints of one host, 0: never
    unsigned delay_max = 1;
    unsigned slow_percent = 0;  // messages that take far longer
    unsigned latch_max = 0;
    unsigned lease_writes = 0;  // WriteLease
    unsigned lease_time = 0;
    unsigned wants_copy_percent = 0;  // of evictions: home asks for the last copy
    unsigned store_delay_max = 1;
    unsigned store_knows_tenures = 1;
    unsigned crash_interval = 0;       // 0: never
    unsigned cut_interval = 0;         // 0: never
    unsigned forget_percent = 0;       // of crashes: the others are told that the host is dead
    unsigned adopt_percent = 0;        // of crashes: only the process dies, and the next one adopts its memory
    unsigned one_way_percent = 0;      // of cuts: one direction is stuck, and the link lost later or not
    unsigned pause_interval = 0;       // 0: never
    unsigned late_side_max = 0;        // by how much one side of a link is up before the other
    unsigned store_fails_percent = 0;  // of the flushes of a store: it takes nothing any more

    unsigned together_percent = 0;    // of operations: idle clients of the host begin the same on the pages that follow
    unsigned at_once_percent = 0;     // of evictions: clean frames go before home has answered, or while it is away
    unsigned shares_sessions = 0;     // the clients of a host are connections of one
    unsigned late_sends_percent = 0;  // of the pages sent: their bytes are taken from the frame later
    unsigned late_sends_max = 1;      // by at most this much
    unsigned mark_delay_max = 0;      // how long it takes to mark a page; 0: all are marked
    unsigned gather_max = 0;          // how long a message may wait for others to join it; 0: it leaves at once, alone

    // visit(name, field) for each number that a run depends on.
    template <class Visitor>
    void for_each_field(Visitor&& visit) {
        visit("hosts", host_count);
        visit("pages", page_count);
        visit("volumes", volume_count);
        visit("frames", frame_count);
        visit("clients", clients_per_host);
        visit("operations", operations_per_client);
        visit("reads", read_percent);
        visit("whole", whole_write_percent);
        visit("zeros", zero_percent);
        visit("flushes", flush_percent);
        visit("cancels", cancel_percent);
        visit("full", no_space_percent);
        visit("evict", evict_interval);
        visit("delay", delay_max);
        visit("slow", slow_percent);
        visit("latch", latch_max);
        visit("lease_writes", lease_writes);
        visit("lease_time", lease_time);
        visit("wants_copy", wants_copy_percent);
        visit("store", store_delay_max);
        visit("tenures", store_knows_tenures);
        visit("crash", crash_interval);
        visit("cut", cut_interval);
        visit("forget", forget_percent);
        visit("adopt", adopt_percent);
        visit("together", together_percent);
        visit("gather", gather_max);
        visit("at_once", at_once_percent);
        visit("shares", shares_sessions);
        visit("one_way", one_way_percent);
        visit("pause", pause_interval);
        visit("late_sends", late_sends_percent);
        visit("late_max", late_sends_max);
        visit("store_fails", store_fails_percent);
        visit("marks", mark_delay_max);
        visit("late_side", late_side_max);
    }
    bool set(std::string_view wanted, unsigned value) {
        bool found = false;
        for_each_field([&](std::string_view name, unsigned& field) {
            if (name != wanted) return;
            field = value;
            found = true;
        });
        return found;
    }

    // At least this many operations begin in a run.
    static constexpr unsigned operations_min = 240;

    unsigned client_count() const { return host_count * clients_per_host; }
    static unsigned operations_of_each(unsigned client_count, unsigned wanted) {
        return std::max(wanted, (operations_min + client_count - 1) / client_count);
    }

    static Scenario draw(Random random, bool with_faults) {
        const auto on = [&] { return random.chance(50); };
        const auto between = [&](unsigned first, unsigned last) {
            return static_cast<unsigned>(random.between(first, last));
        };
        Scenario scenario;
        scenario.host_count = between(2, 5);
        scenario.page_count = random.chance(40) ? 1 : between(1, 8);
        scenario.volume_count = between(1, 3);
        scenario.frame_count = on() ? between(3, 5) : 32;
        scenario.clients_per_host = between(1, 4);
        scenario.operations_per_client = operations_of_each(scenario.client_count(), between(10, 40));
        scenario.read_percent = on() ? between(5, 90) : 40;
        scenario.whole_write_percent = on() ? between(0, 60) : 0;
        scenario.zero_percent = on() ? 30 : 0;
        scenario.flush_percent = on() ? between(2, 20) : 0;
        scenario.cancel_percent = random.chance(25) ? 10 : 0;
        scenario.no_space_percent = random.chance(20) ? between(1, 30) : 0;
        scenario.evict_interval = on() ? between(20, 400) : 0;
        scenario.delay_max = between(1, 100);
        scenario.slow_percent = on() ? between(1, 20) : 0;
        scenario.latch_max = on() ? between(1, 60) : 0;
        scenario.lease_writes = on() ? between(1, 8) : 0;
        scenario.lease_time = between(1, 200);
        scenario.wants_copy_percent = on() ? between(1, 100) : 0;
        scenario.store_delay_max = between(1, 200);
        scenario.store_knows_tenures = on() ? 1 : 0;
        const bool crashes = on();
        const bool cuts = on();
        const unsigned crash_interval = between(300, 4000);
        const unsigned cut_interval = between(200, 3000);
        const unsigned forget_percent = on() ? 30 : 0;
        const unsigned adopt_percent = on() ? between(20, 100) : 0;
        scenario.crash_interval = with_faults && crashes ? crash_interval : 0;
        scenario.cut_interval = with_faults && cuts ? cut_interval : 0;
        scenario.forget_percent = scenario.crash_interval != 0 ? forget_percent : 0;
        // An adopting home that cannot tell the version of its stored bytes takes them for newer than any kept ones.
        const bool adopts = scenario.crash_interval != 0 && scenario.store_knows_tenures != 0;
        scenario.adopt_percent = adopts ? adopt_percent : 0;
        if (!random.chance(65)) {
            scenario.together_percent = between(10, 80);
            scenario.gather_max = on() ? 1 : between(2, 30);
            scenario.page_count = std::max(scenario.page_count, between(2, 8));
            scenario.volume_count = std::min(scenario.volume_count, between(1, 3));
            scenario.clients_per_host = std::max(scenario.clients_per_host, between(2, 6));
            // Its operations are larger, so fewer suffice.
            scenario.operations_per_client =
                operations_of_each(scenario.client_count(), scenario.operations_per_client * 2 / 3);
        }
        scenario.at_once_percent = on() ? between(5, 100) : 0;
        scenario.shares_sessions = on() ? 1 : 0;
        // Races with a flush are rare unless there is much traffic.
        if (random.chance(10)) scenario.flush_percent = between(30, 60);
        const unsigned one_way_percent = on() ? between(10, 100) : 0;
        const unsigned pause_interval = random.chance(30) ? between(200, 3000) : 0;
        scenario.one_way_percent = scenario.cut_interval != 0 ? one_way_percent : 0;
        scenario.pause_interval = with_faults ? pause_interval : 0;
        scenario.late_sends_percent = random.chance(30) ? between(10, 100) : 0;
        scenario.late_sends_max = on() ? 20 : 500;
        const unsigned store_fails_percent = random.chance(20) ? between(1, 20) : 0;
        scenario.store_fails_percent = with_faults ? store_fails_percent : 0;
        scenario.mark_delay_max = on() ? between(1, 200) : 0;
        scenario.late_side_max = on() ? between(1, 400) : 0;
        return scenario;
    }
};

}  // namespace tarn::sim
