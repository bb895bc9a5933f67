// How much CPUs idled, from what the kernel counts.
#include "daemon/process/idle_cpus.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tarn {
namespace {

using namespace std::chrono_literals;

class IdleCpusTest : public testing::Test {
  protected:
    // A second has passed in this part of which each CPU idled, or waited for a device.
    void pass(double first_idles, double first_waits, double second_idles) {
        const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
        idle_ += first_idles * ticks;
        waiting_ += first_waits * ticks;
        second_idle_ += second_idles * ticks;
        now_ += 1s;
    }
    std::string counts() const {
        return fmt::format("cpu  1 2 3 99999 5 6\ncpu0 1 2 3 {:.0f} {:.0f} 6\ncpu2 1 2 3 {:.0f} 0 6\nintr 1\n", idle_,
                           waiting_, second_idle_);
    }
    std::optional<unsigned> most_idle(const CpuSet& cpus) { return idle_cpus_.most_idle(cpus, now_); }

    double idle_ = 1000;
    double waiting_ = 1000;
    double second_idle_ = 1000;
    IdleCpus::Clock::time_point now_ = IdleCpus::Clock::time_point{} + 1h;
    IdleCpus idle_cpus_{[this] { return counts(); }};
};

TEST_F(IdleCpusTest, the_one_that_idled_most_counts_and_to_wait_is_to_idle) {
    EXPECT_EQ(most_idle({0, 2}), std::nullopt) << "nothing to compare with";
    pass(0.25, 0.5, 0.1);
    EXPECT_EQ(most_idle({0, 2}), 75u);
    EXPECT_EQ(most_idle({2}), 10u);
    pass(0, 0, 1);
    EXPECT_EQ(most_idle({0, 2}), 100u);
    EXPECT_EQ(most_idle({0}), 0u);
}

TEST_F(IdleCpusTest, of_no_cpus_nothing_is_known_and_those_that_are_not_there_do_not_idle) {
    (void)most_idle({0});
    pass(1, 0, 1);
    EXPECT_EQ(most_idle({}), std::nullopt);
    EXPECT_EQ(most_idle({1, 3, 60'000}), 0u);
}

TEST_F(IdleCpusTest, looks_that_follow_each_other_at_once_say_the_same) {
    (void)most_idle({0});
    pass(0.5, 0, 0);
    EXPECT_EQ(most_idle({0}), 50u);
    idle_ += 1000;
    now_ += IdleCpus::span_min - 1ms;
    EXPECT_EQ(most_idle({0}), 50u);
    now_ += 1ms;
    EXPECT_EQ(most_idle({0}), 100u);
}

TEST_F(IdleCpusTest, a_look_long_after_the_last_knows_nothing) {
    (void)most_idle({0});
    pass(1, 0, 1);
    now_ += 1ms;
    EXPECT_EQ(most_idle({0}), std::nullopt);
    pass(0.5, 0, 1);
    EXPECT_EQ(most_idle({0}), 50u);
}

TEST(IdleCpus, the_machine_counts_the_time_of_each_cpu) {
    IdleCpus idle_cpus;
    const CpuSet all = *CpuSet::of_thread();
    const auto now = IdleCpus::Clock::now();
    EXPECT_EQ(idle_cpus.most_idle(all, now), std::nullopt);
    EXPECT_NE(idle_cpus.most_idle(all, now + IdleCpus::span_min), std::nullopt);
}

}  // namespace
}  // namespace tarn
