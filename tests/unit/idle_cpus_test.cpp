// How much CPUs idle, on the real machine: nobody works on a CPU that is kept busy by us, and idle time is a part.
#include "daemon/process/idle_cpus.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tarn {
namespace {

using namespace std::chrono_literals;

class IdleCpusTest : public testing::Test {
  protected:
    // Of a span that ends now. On a machine that holds us up a look may come too late to know.
    std::optional<unsigned> after(std::chrono::milliseconds span, const CpuSet& cpus) {
        std::optional<unsigned> percent;
        for (int attempt = 0; attempt < 20 && !percent; ++attempt) {
            for (const auto until = IdleCpus::Clock::now() + span; IdleCpus::Clock::now() < until;) continue;
            percent = idle_.most_idle(cpus, IdleCpus::Clock::now());
        }
        return percent;
    }
    IdleCpus idle_;
    const CpuSet all_ = *CpuSet::of_thread();
    const CpuSet ours_{all_.list().front()};
};

TEST_F(IdleCpusTest, the_first_look_knows_nothing_nor_one_long_after_the_last) {
    const auto now = IdleCpus::Clock::now();
    EXPECT_EQ(idle_.most_idle(all_, now), std::nullopt);
    EXPECT_NE(after(60ms, all_), std::nullopt);
    EXPECT_EQ(idle_.most_idle(all_, now + 2h), std::nullopt);
}

TEST_F(IdleCpusTest, a_cpu_that_is_busy_does_not_idle) {
    std::thread([&] {
        ASSERT_TRUE(ours_.bind());
        const std::optional<unsigned> percent = after(200ms, ours_);
        ASSERT_NE(percent, std::nullopt);
        EXPECT_LE(*percent, 10u);
    }).join();
}

TEST_F(IdleCpusTest, looks_that_follow_each_other_at_once_say_the_same) {
    ASSERT_NE(after(60ms, all_), std::nullopt);
    const auto now = IdleCpus::Clock::now() + IdleCpus::span_min;
    const std::optional<unsigned> percent = idle_.most_idle(all_, now);
    EXPECT_EQ(idle_.most_idle(all_, now + 49ms), percent);
    EXPECT_EQ(idle_.most_idle(CpuSet{60'000}, now + 49ms).value_or(0), 0u) << "a CPU that is not there does not idle";
    EXPECT_EQ(idle_.most_idle(CpuSet(), now + 49ms), std::nullopt);
}

}  // namespace
}  // namespace tarn
