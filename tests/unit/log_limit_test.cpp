#include "utils/log_limit.hpp"

#include <gtest/gtest.h>

namespace tarn {
namespace {

using namespace std::chrono_literals;

TEST(LogLimit, writes_so_many_lines_in_a_window_and_counts_the_rest) {
    LogLimit limit(3, 10s);
    constexpr uint64_t second = 1'000'000'000;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.admit(5 * second), "");
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(limit.admit(14 * second), std::nullopt);
    EXPECT_EQ(limit.admit(15 * second), " (and 1000 like it, left out)");
    EXPECT_EQ(limit.admit(15 * second), "");
    EXPECT_EQ(limit.admit(24 * second), "");
    EXPECT_EQ(limit.admit(24 * second), std::nullopt);
}

TEST(LogLimit, a_window_begins_with_its_first_line) {
    LogLimit limit(1, 10s);
    EXPECT_EQ(limit.admit(1), "");
    EXPECT_EQ(limit.admit(9'999'999'999), std::nullopt);
    EXPECT_EQ(limit.admit(10'000'000'001), " (and 1 like it, left out)");
    EXPECT_EQ(limit.admit(19'000'000'000), std::nullopt);
    EXPECT_EQ(limit.admit(30'000'000'000), " (and 1 like it, left out)");
    EXPECT_EQ(limit.admit(50'000'000'000), "");
}

}  // namespace
}  // namespace tarn
