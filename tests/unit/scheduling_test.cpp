// When a shard's thread is joined to its CPUs, courteous or released.
#include "daemon/process/scheduling.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace tarn {
namespace {

using namespace std::chrono_literals;
using Mode = Scheduling::Mode;

class SchedulingTest : public testing::Test {
  protected:
    Mode after(Scheduling::Window window) {
        window.time = 100ms;
        now_ += window.time;
        return scheduling_.next(window, now_);
    }
    // Windows until the mode is this one; none: it does not come to that within two minutes.
    std::optional<int> windows_until(Mode mode, const Scheduling::Window& window) {
        for (int count = 1; count <= 1200; ++count)
            if (after(window) == mode) return count;
        return std::nullopt;
    }

    // Clients on our CPU wake the shard; it waits for the CPU while they use it.
    static constexpr Scheduling::Window near{.delay = 40ms, .runs = 10'000, .waits = 10'000, .near_wake_ups = 9'000};
    static constexpr Scheduling::Window far{.delay = 1ms, .runs = 10'000, .waits = 10'000, .near_wake_ups = 100};
    static constexpr Scheduling::Window hogged{
        .delay = 50ms, .runs = 20, .waits = 20, .near_wake_ups = 20, .others_idle_percent = 60};
    static constexpr Scheduling::Window all_busy{.delay = 50ms, .runs = 20, .waits = 20, .near_wake_ups = 20};
    static constexpr Scheduling::Window starved{
        .delay = 10ms, .runs = 9'000, .waits = 9'000, .near_wake_ups = 9'000, .starved = true};

    Scheduling scheduling_;
    Scheduling::Clock::time_point now_ = Scheduling::Clock::time_point{} + 1h;
};

TEST_F(SchedulingTest, it_is_courteous_to_clients_on_its_cpu) {
    EXPECT_EQ(after(far), Mode::joined);
    EXPECT_EQ(after(near), Mode::courteous);
    EXPECT_EQ(after(near), Mode::courteous);
    EXPECT_EQ(after(far), Mode::joined);
}

// Nothing draws its clients away then, and courtesy has its price.
TEST_F(SchedulingTest, it_is_not_courteous_while_no_other_cpu_idles) {
    Scheduling::Window window = near;
    window.others_idle_percent = 14;
    EXPECT_EQ(after(window), Mode::joined);
    window.others_idle_percent = 15;
    EXPECT_EQ(after(window), Mode::courteous);
    window.others_idle_percent = 14;
    EXPECT_EQ(after(window), Mode::joined);
    window.others_idle_percent = 15;
    EXPECT_EQ(after(window), Mode::courteous) << "that was no failure: it need not wait";
}

TEST_F(SchedulingTest, a_few_wake_ups_are_not_worth_it) {
    EXPECT_EQ(after({.runs = 50, .waits = 50, .near_wake_ups = 50}), Mode::joined);
}

TEST_F(SchedulingTest, clients_that_come_and_go_are_enough_to_begin_and_not_to_go_on) {
    const Scheduling::Window some{.runs = 10'000, .waits = 10'000, .near_wake_ups = 2'000};
    EXPECT_EQ(after(some), Mode::courteous);
    EXPECT_EQ(after(some), Mode::joined);
    const Scheduling::Window half{.runs = 10'000, .waits = 10'000, .near_wake_ups = 4'000};
    EXPECT_EQ(after(half), Mode::courteous);
    EXPECT_EQ(after(half), Mode::courteous);
}

TEST_F(SchedulingTest, somebody_who_uses_the_cpu_with_pauses_ends_courtesy) {
    const Scheduling::Window with_pauses{
        .delay = 85ms, .runs = 400, .waits = 400, .requests = 400, .near_wake_ups = 400};
    const Scheduling::Window clients{
        .delay = 85ms, .runs = 5000, .waits = 5000, .requests = 5000, .near_wake_ups = 5000};
    EXPECT_EQ(after(clients), Mode::courteous);
    EXPECT_EQ(after(clients), Mode::courteous);
    EXPECT_EQ(after(with_pauses), Mode::joined);
}

TEST_F(SchedulingTest, who_starved_is_courteous_again_later_and_later) {
    ASSERT_EQ(after(near), Mode::courteous);
    std::vector<int> pauses;
    for (int i = 0; i < 9; ++i) {
        EXPECT_EQ(after(starved), Mode::joined);
        const std::optional<int> pause = windows_until(Mode::courteous, near);
        ASSERT_TRUE(pause);
        pauses.push_back(*pause);
    }
    EXPECT_EQ(pauses, (std::vector<int>{3, 5, 10, 20, 40, 80, 160, 320, 640}));
    EXPECT_EQ(after(starved), Mode::joined);
    EXPECT_EQ(windows_until(Mode::courteous, near), 640) << "64 seconds are the longest";
}

TEST_F(SchedulingTest, one_that_was_courteous_for_long_begins_anew) {
    ASSERT_EQ(after(near), Mode::courteous);
    after(starved);
    EXPECT_EQ(windows_until(Mode::courteous, near), 3);
    for (int i = 0; i < 30; ++i) EXPECT_EQ(after(near), Mode::courteous);
    after(starved);
    EXPECT_EQ(windows_until(Mode::courteous, near), 3);
}

TEST_F(SchedulingTest, it_is_courteous_to_nobody_who_takes_milliseconds) {
    ASSERT_EQ(after(near), Mode::courteous);
    EXPECT_EQ(after(hogged), Mode::joined);
    EXPECT_EQ(after(hogged), Mode::released);
}

TEST_F(SchedulingTest, it_leaves_its_cpu_to_somebody_else_while_another_one_idles) {
    EXPECT_EQ(after(all_busy), Mode::joined) << "nowhere to go";
    EXPECT_EQ(after(hogged), Mode::released);
    EXPECT_EQ(windows_until(Mode::joined, far), 3);
    EXPECT_EQ(after(hogged), Mode::released);
    EXPECT_EQ(windows_until(Mode::joined, far), 5) << "it comes back later if that did not work out";
}

TEST_F(SchedulingTest, its_own_clients_are_not_somebody_else) {
    const auto released = [](Scheduling::Window window) {
        window.time = 100ms;
        window.others_idle_percent = 60;
        EXPECT_EQ(Scheduling::asks_for_other_cpus(window), Scheduling().next(window, {}) == Mode::released);
        return Scheduling::asks_for_other_cpus(window);
    };
    EXPECT_FALSE(released({.delay = 40ms, .runs = 10'000, .waits = 10'000, .requests = 10'000}));
    EXPECT_TRUE(released({.delay = 20ms, .runs = 20, .waits = 20}));
    EXPECT_FALSE(released({.delay = 19ms, .runs = 19, .waits = 19}));
    EXPECT_FALSE(released({.delay = 50ms, .runs = 51, .waits = 51}));
    EXPECT_FALSE(released({.waits = 1}));
}

// Deep queues of clients that keep the CPU busy.
class CrowdedTest : public SchedulingTest {
  protected:
    static constexpr Scheduling::Window crowded{.run = 40ms,
                                                .delay = 40ms,
                                                .runs = 1'000,
                                                .waits = 1'000,
                                                .sleeps = 1'000,
                                                .requests = 4'000,
                                                .near_wake_ups = 1'000,
                                                .others_idle_percent = 60};
    static Scheduling::Window serving(uint64_t requests) {
        return {.run = 90ms, .runs = 10, .waits = 10, .sleeps = 10, .requests = requests};
    }
};

TEST_F(CrowdedTest, it_goes_beside_them_if_it_serves_more_there) {
    EXPECT_EQ(after(crowded), Mode::released);
    EXPECT_EQ(after(serving(100)), Mode::released) << "the first window counts for nothing";
    EXPECT_EQ(after(serving(4'500)), Mode::released);
    EXPECT_EQ(after(serving(100)), Mode::released) << "nor does a later one";
}

TEST_F(CrowdedTest, it_comes_back_if_it_does_not) {
    EXPECT_EQ(after(crowded), Mode::released);
    EXPECT_EQ(after(serving(9'000)), Mode::released);
    EXPECT_EQ(after(serving(4'399)), Mode::joined);
    EXPECT_EQ(windows_until(Mode::released, crowded), 3);
    EXPECT_EQ(after(serving(9'000)), Mode::released);
    EXPECT_EQ(after(serving(4'399)), Mode::joined);
    EXPECT_EQ(windows_until(Mode::released, crowded), 5) << "and tries again later and later";
}

TEST_F(CrowdedTest, it_stays_there_also_when_it_is_faster_than_they_are) {
    EXPECT_EQ(after(crowded), Mode::released);
    after(serving(4'500));
    after(serving(4'500));
    EXPECT_EQ(after({.run = 90ms, .runs = 10'000, .sleeps = 2'250, .requests = 2'250}), Mode::released);
    EXPECT_EQ(after({.run = 90ms, .runs = 10'000, .sleeps = 10, .requests = 40}), Mode::released) << "deep, but slow";
}

TEST_F(CrowdedTest, it_may_be_faster_from_the_first_window_on) {
    const Scheduling::Window fast{.run = 60ms, .runs = 5'000, .sleeps = 4'500, .requests = 4'500};
    EXPECT_EQ(after(crowded), Mode::released);
    for (int i = 0; i < 80; ++i) EXPECT_EQ(after(fast), i < 79 ? Mode::released : Mode::joined) << i;
    const Scheduling::Window slower{.run = 60ms, .runs = 2'000, .sleeps = 2'000, .requests = 2'000};
    EXPECT_EQ(after(crowded), Mode::released);
    EXPECT_EQ(after(slower), Mode::released) << "how fast it was the last time does not count";
}

TEST_F(CrowdedTest, a_shard_without_clients_has_none_beside_which_to_go) {
    const Scheduling::Window links{.run = 100ms, .runs = 10, .others_idle_percent = 100};
    EXPECT_EQ(after(links), Mode::joined);
}

TEST_F(CrowdedTest, it_comes_back_when_they_send_one_request_at_a_time) {
    EXPECT_EQ(after(crowded), Mode::released);
    after(serving(4'500));
    after(serving(4'500));
    EXPECT_EQ(after({.run = 90ms, .runs = 10'000, .sleeps = 2'249, .requests = 2'249}), Mode::joined);
}

TEST_F(CrowdedTest, it_comes_back_when_others_want_the_cpu_that_it_went_to) {
    EXPECT_EQ(after(crowded), Mode::released);
    after(serving(4'500));
    after(serving(4'500));
    Scheduling::Window window = serving(4'500);
    window.delay = 10ms;
    EXPECT_EQ(after(window), Mode::released);
    window.delay = 11ms;
    EXPECT_EQ(after(window), Mode::joined);
    EXPECT_EQ(windows_until(Mode::released, crowded), 3);
}

TEST_F(CrowdedTest, it_compares_again_from_time_to_time) {
    EXPECT_EQ(after(crowded), Mode::released);
    EXPECT_EQ(windows_until(Mode::joined, serving(4'500)), 80);
    EXPECT_EQ(after(crowded), Mode::released);
}

TEST_F(CrowdedTest, it_stays_where_it_is_as_good) {
    const auto stays = [](Scheduling::Window window) {
        window.time = 100ms;
        return Scheduling().next(window, {}) != Mode::released;
    };
    EXPECT_FALSE(stays(crowded));
    Scheduling::Window other = crowded;
    other.requests = 3'999;
    EXPECT_TRUE(stays(other)) << "the queues are not deep";
    other = crowded;
    other.run = 39ms;
    EXPECT_TRUE(stays(other)) << "the CPU has time left";
    other = crowded;
    other.others_idle_percent = 49;
    EXPECT_TRUE(stays(other)) << "no other CPU has";
}

}  // namespace
}  // namespace tarn
