#include "daemon/process/loss_statuses.hpp"

#include <gtest/gtest.h>

namespace tarn {
namespace {

Loss loss_of(VolumeId volume, uint64_t first, uint64_t last, uint32_t generation, HostId host) {
    return {.first = PageId::of(volume, first),
            .last = PageId::of(volume, last),
            .page_count = last - first + 1,
            .at_ns = generation,
            .generation = generation,
            .host = host};
}

TEST(LossStatuses, are_one_line_for_each_loss_of_a_volume) {
    Loss unknown = loss_of(0, 0, 3, 4, no_host);
    unknown.page_count = 0;
    Loss rest = loss_of(1, 9, 9, 4, no_host);
    rest.last = last_page_id;
    const std::vector<Loss> losses = {
        unknown, loss_of(1, 5, 6, 2, 1), rest, loss_of(1, 9, 9, 2, 1), loss_of(1, 9, 9, 3, 1), loss_of(2, 7, 7, 2, 1)};
    const auto statuses = loss_statuses(
        losses, [](VolumeId volume) { return "volume " + std::to_string(volume); },
        [](HostId host) { return host == no_host ? "" : "host " + std::to_string(host); });
    ASSERT_EQ(statuses.size(), 4u);
    EXPECT_EQ(statuses[0].volume, "volume 1");
    EXPECT_EQ(statuses[0].host, "host 1");
    EXPECT_EQ(statuses[0].page_count, 3u);
    EXPECT_EQ(statuses[0].first_page, 5u);
    EXPECT_EQ(statuses[0].last_page, 9u);
    EXPECT_EQ(statuses[1].volume, "volume 2");
    EXPECT_EQ(statuses[2].generation, 3u);
    EXPECT_EQ(statuses[3].volume, "");
    EXPECT_EQ(statuses[3].host, "");
    EXPECT_EQ(statuses[3].page_count, 0u);
    EXPECT_EQ(statuses[3].generation, 4u);
}

}  // namespace
}  // namespace tarn
