// Costs: the time that messages, accesses and devices take, in nanoseconds of virtual time.
//
// The defaults are those of the papers' clusters: RDMA over 100 Gb/s.
#pragma once

#include <cstdint>

namespace tarn::sim_performance {

using Time = uint64_t;

struct Costs {
    Time message = 1'000;  // one way, without a page
    Time page = 2'300;     // one way, with a page
    double link_bytes_per_ns = 12.5;
    Time packet_cpu = 250;      // to send, or to receive, one packet between two hosts
    Time message_cpu = 200;     // to handle one message
    Time waiting_max = 50'000;  // for a message that may wait for another one
    Time access = 300;          // a local access to a page that is held
    Time store_read = 80'000;
    Time store_interval = 1'400;  // between two pages of one device

    static Costs rdma() { return {}; }
    // 10 Gb/s; a packet costs a system call and a wake-up.
    static Costs tcp() {
        return {.message = 25'000,
                .page = 28'300,
                .link_bytes_per_ns = 1.25,
                .packet_cpu = 3'000,
                .message_cpu = 300,
                .waiting_max = 1'000'000,
                .access = 300};
    }
    // Time counts one-way delays, and nothing else.
    static Costs delays() {
        return {.message = 1,
                .page = 1,
                .link_bytes_per_ns = 1e9,
                .packet_cpu = 0,
                .message_cpu = 0,
                .waiting_max = 0,
                .access = 0,
                .store_read = 0,
                .store_interval = 0};
    }
};

}  // namespace tarn::sim_performance
