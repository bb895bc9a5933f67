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
        losses, [](VolumeId volume) { return std::optional("volume " + std::to_string(volume)); },
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

TEST(LossStatuses, name_the_attributes_apart_from_the_pages) {
    const uint64_t last = page_number_mask;
    const std::vector<Loss> losses = {
        loss_of(1, 1, 255, 2, 1),     loss_of(1, last - 255, last, 2, 1),  // the MiB of its data, and of those
        loss_of(2, 0, 9, 2, 1),       loss_of(2, last - 255, last - 1, 2, 1),
        loss_of(3, last, last, 2, 1), loss_of(4, last - 9, last - 1, 2, 1),
        loss_of(5, 0, 9, 2, 1),  // it was deleted
    };
    const auto statuses = loss_statuses(
        losses,
        [](VolumeId volume) { return volume == 5 ? std::nullopt : std::optional("volume " + std::to_string(volume)); },
        [](HostId) { return "a"; });
    ASSERT_EQ(statuses.size(), 3u);
    EXPECT_EQ(statuses[0].page_count, 255u);
    EXPECT_EQ(statuses[0].first_page, 1u);
    EXPECT_EQ(statuses[0].last_page, 255u);
    EXPECT_TRUE(statuses[0].attributes);
    EXPECT_EQ(statuses[1].page_count, 10u);
    EXPECT_EQ(statuses[1].last_page, 9u);
    EXPECT_FALSE(statuses[1].attributes) << "another host held them";
    EXPECT_EQ(statuses[2].volume, "volume 3");
    EXPECT_EQ(statuses[2].page_count, 0u);
    EXPECT_TRUE(statuses[2].attributes);
}

}  // namespace
}  // namespace tarn
