// StoreState: which pages and blocks of the table are due, and how often.
#include "tiers/nvme/store_state.hpp"

#include <gtest/gtest.h>

namespace tarn {
namespace {

constexpr Uuid store = {7};
constexpr uint64_t slab_count = 8;
constexpr SlabIndex slab = 3;

class StoreStateTest : public testing::Test {
  protected:
    static PageId page(uint64_t number) { return PageId::of(1, number); }
    void delta(uint64_t number, uint64_t end) {
        take();
        state_.on_delta({.kind = RecordKind::delta,
                         .dirty = all_sectors,
                         .flags = JournalRecord::base_is_zeros,
                         .slab = slab,
                         .page = page(number)},
                        end - page_size, end);
    }
    void in_place(uint64_t number, uint64_t end) {
        take();
        const InPlaceEntry entry{.tenure = 1};
        state_.on_in_place({.kind = RecordKind::in_place, .slab = slab, .page = page(number)}, std::span(&entry, 1),
                           end);
    }
    void take() { ASSERT_TRUE(state_.table.replay_take(slab, page(0))); }

    StoreState state_{store, slab_count};
};

TEST_F(StoreStateTest, a_block_says_all_that_was_recorded_until_it_was_written) {
    in_place(0, 10'000);
    in_place(1, 20'000);
    EXPECT_TRUE(state_.take_due_slabs(9'999).empty());
    EXPECT_EQ(state_.take_due_slabs(10'000), std::vector{slab});
    state_.is_said(slab);
    in_place(2, 30'000);
    in_place(3, 40'000);
    EXPECT_TRUE(state_.take_due_slabs(29'999).empty()) << "the second record was said with the first";
    EXPECT_EQ(state_.take_due_slabs(50'000), std::vector{slab});
    state_.is_said(slab);
    EXPECT_TRUE(state_.take_due_slabs(50'000).empty());
}

TEST_F(StoreStateTest, a_block_that_was_written_early_is_not_due) {
    in_place(0, 10'000);
    state_.is_said(slab);
    EXPECT_TRUE(state_.take_due_slabs(50'000).empty());
}

TEST_F(StoreStateTest, a_page_is_due_once_however_often_it_was_written) {
    delta(5, 10'000);
    delta(6, 20'000);
    delta(5, 30'000);
    EXPECT_EQ(state_.first_due(), 10'000);
    EXPECT_EQ(state_.take_due_pages(30'000), (std::vector{page(5), page(6)}));
    EXPECT_EQ(state_.first_due(), UINT64_MAX);
    EXPECT_TRUE(state_.take_due_slabs(30'000).empty()) << "a delta says nothing of places";
}

TEST_F(StoreStateTest, what_was_left_comes_with_the_tail_unless_it_was_moved_by_then) {
    delta(5, 10'000);
    delta(6, 20'000);
    delta(7, 30'000);
    const std::vector<PageId> taken = state_.take_due_pages(30'000);
    state_.leave(taken);
    state_.leave(taken);
    in_place(6, 40'000);
    EXPECT_TRUE(state_.take_left(9'999).empty());
    EXPECT_EQ(state_.take_left(20'000), std::vector{page(5)});
    EXPECT_EQ(state_.take_left(30'000), std::vector{page(7)});
    EXPECT_TRUE(state_.take_left(30'000).empty());
}

}  // namespace
}  // namespace tarn
