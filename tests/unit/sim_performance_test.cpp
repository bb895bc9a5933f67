// The simulated performance: what docs/protocol-performance.md says of messages and delays, and that equal seeds give
// equal runs.
#include <gtest/gtest.h>

#include "tests/sim/performance/basic_orders.hpp"
#include "tests/sim/performance/directory_model.hpp"
#include "tests/sim/performance/tarn_system.hpp"

namespace tarn::sim_performance {
namespace {

TEST(SimPerformance, AccessesTakeTheMessagesAndDelaysOfTheProtocol) {
    for (const BasicOrder& order : basic_orders())
        EXPECT_EQ(count(order), (Counted{order.messages, order.aside, order.delays})) << order.name;
}

// Few frames, so that pages are evicted; hot pages, so that they are chained.
Measured run(uint64_t seed) {
    Machine machine(Costs::rdma(), 4);
    TarnSystem system(machine, {.page_count = 256, .frames_per_host = 128});
    Load load(machine, system, 4, seed, [](HostId, Random& random) {
        return Operation{random.chance(50) ? Operation::Kind::write : Operation::Kind::read,
                         random.below(random.chance(50) ? 4 : 256)};
    });
    load.begin();
    return load.measure(1'000'000, 5'000'000);
}

TEST(SimPerformance, EqualSeedsGiveEqualRuns) {
    const Measured first = run(7);
    const Measured again = run(7);
    EXPECT_GT(first.operations, 1000U);
    EXPECT_EQ(first.latencies, again.latencies);
    EXPECT_EQ(first.messages, again.messages);
    EXPECT_EQ(first.shares, again.shares);
    EXPECT_NE(first.latencies, run(8).latencies);
}

// The models are not handicapped: with tarn's choices, but without its copies to home, one is at least as fast.
TEST(SimPerformance, AModelOfTarnsChoicesIsNotSlower) {
    const auto write_one_page = [](HostId, Random&) { return Operation{Operation::Kind::write, 0}; };
    Machine machine(Costs::rdma(), 5);
    TarnSystem tarn(machine, {.lease = {.writes = 0, .time_us = 0}});
    Load load(machine, tarn, 1, 1, write_one_page);
    load.begin();
    Machine model_machine(Costs::rdma(), 5);
    DirectoryModel model(model_machine, {.resolves = ModelOptions::Resolves::home});
    Load model_load(model_machine, model, 1, 1, write_one_page);
    model_load.begin();
    EXPECT_GE(model_load.measure(1'000'000, 5'000'000).misses, load.measure(1'000'000, 5'000'000).misses);
}

}  // namespace
}  // namespace tarn::sim_performance
