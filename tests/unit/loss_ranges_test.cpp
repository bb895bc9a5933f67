#include "coherence/protocol/loss_ranges.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tarn::protocol {
namespace {

constexpr PageId at(uint64_t value) {
    return {value};
}

TEST(LossRanges, tell_of_each_page_the_newest_loss) {
    EXPECT_EQ(LossRanges().generation_of(at(7)), 0u);
    const std::vector<LossRange> ranges = {{at(10), at(20), 3}, {at(15), at(30), 2}, {at(18), at(18), 9}};
    const LossRanges losses(ranges);
    EXPECT_EQ(losses.generation_of(at(9)), 0u);
    EXPECT_EQ(losses.generation_of(at(10)), 3u);
    EXPECT_EQ(losses.generation_of(at(17)), 3u);
    EXPECT_EQ(losses.generation_of(at(18)), 9u);
    EXPECT_EQ(losses.generation_of(at(19)), 3u);
    EXPECT_EQ(losses.generation_of(at(20)), 3u);
    EXPECT_EQ(losses.generation_of(at(21)), 2u);
    EXPECT_EQ(losses.generation_of(at(30)), 2u);
    EXPECT_EQ(losses.generation_of(at(31)), 0u);
}

TEST(LossRanges, all_marked_pages_without_the_held_ones_are_lost) {
    const std::array<LossRange, 3> marked{LossRange{at(0), at(7)}, {at(9), at(9)}, {at(11), {UINT64_MAX}}};
    std::vector<LossRange> ranges = without(marked, {at(6), at(0), at(5), at(9), at(8)});
    for (LossRange& range : ranges) range.generation = 1;
    const LossRanges losses(ranges);
    for (uint64_t page = 0; page < 12; ++page) {
        const bool is_lost = (page != 0 && page < 5) || page == 7 || page == 11;
        EXPECT_EQ(losses.generation_of(at(page)), is_lost ? 1u : 0u) << page;
    }
    EXPECT_EQ(losses.generation_of(at(UINT64_MAX)), 1u);
    EXPECT_EQ(without(marked, {}).size(), marked.size());
}

}  // namespace
}  // namespace tarn::protocol
