#include "coherence/membership/range_map.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tarn {
namespace {

RangeMap three_hosts() {
    static const std::vector<HostId> hosts{4, 0, 2};
    return RangeMap(7, hosts, 16);
}

TEST(RangeMap, ranges_lie_round_robin_in_the_order_of_the_hosts) {
    const RangeMap map = three_hosts();
    const HostId first = map.home_of(PageId::of(3, 0));
    EXPECT_EQ(first, 4);
    EXPECT_EQ(map.home_of(PageId::of(3, 15)), first);
    EXPECT_EQ(map.home_of(PageId::of(3, 16)), 0);
    EXPECT_EQ(map.home_of(PageId::of(3, 32)), 2);
    EXPECT_EQ(map.home_of(PageId::of(3, 48)), first);
}

TEST(RangeMap, small_volumes_do_not_all_start_at_the_same_host) {
    const RangeMap map = three_hosts();
    EXPECT_NE(map.home_of(PageId::of(1, 0)), map.home_of(PageId::of(2, 0)));
}

TEST(RangeMap, homes_of_a_volume_are_those_of_its_ranges_only) {
    const RangeMap map = three_hosts();
    EXPECT_EQ(map.homes_of(3, 0), 0u);
    EXPECT_EQ(map.homes_of(3, 1), uint64_t{1} << 4);
    EXPECT_EQ(map.homes_of(3, 17), uint64_t{1} << 4 | uint64_t{1} << 0);
    EXPECT_EQ(map.homes_of(3, uint64_t{1} << 39), uint64_t{1} << 4 | uint64_t{1} << 0 | uint64_t{1} << 2);
}

}  // namespace
}  // namespace tarn
