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
    void delta(uint64_t number, uint64_t end, bool over_zeros = true) {
        take();
        state_.on_delta({.kind = RecordKind::delta,
                         .dirty = all_sectors,
                         .flags = over_zeros ? JournalRecord::base_is_zeros : uint8_t{0},
                         .slab = slab,
                         .page = page(number)},
                        end - page_size, end);
    }
    void clear(uint64_t number, uint64_t end) {
        state_.on_clear({.kind = RecordKind::clear,
                         .flags = JournalRecord::keeps_space,
                         .slab = slab,
                         .page = page(number),
                         .count = 1},
                        end);
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
    delta(6, 10'000);
    delta(5, 20'000);
    delta(6, 30'000, false);
    EXPECT_TRUE(state_.take_due_pages(9'999).empty());
    EXPECT_EQ(state_.take_due_pages(20'000), (std::vector{page(6), page(5)}));
    EXPECT_TRUE(state_.take_due_pages(30'000).empty());
    EXPECT_TRUE(state_.take_due_slabs(30'000).empty()) << "a delta says nothing of places";
}

TEST_F(StoreStateTest, a_page_that_began_anew_is_due_where_it_did) {
    delta(5, 10'000);
    clear(5, 20'000);
    delta(5, 30'000);
    EXPECT_TRUE(state_.take_due_pages(29'999).empty());
    EXPECT_EQ(state_.take_due_pages(30'000), std::vector{page(5)});
}

TEST_F(StoreStateTest, a_page_that_was_written_to_while_it_was_moved_is_due_first) {
    delta(5, 10'000);
    delta(6, 20'000);
    EXPECT_EQ(state_.take_due_pages(10'000), std::vector{page(5)});
    const JournaledPage moved = *state_.find(page(5));
    delta(5, 30'000, false);
    state_.is_in_place(page(5), moved, 10'000);
    EXPECT_TRUE(state_.take_due_pages(10'000).empty());
    EXPECT_EQ(state_.take_due_pages(20'000), (std::vector{page(5), page(6)}));
}

TEST_F(StoreStateTest, what_was_cleared_stays_on_no_list_for_long) {
    delta(0, 1'000);
    for (uint64_t i = 1; i < 10'000; ++i) {
        delta(5, i * 10'000);
        clear(5, i * 10'000 + 5'000);
    }
    EXPECT_LT(state_.due_count(), 2000u);
    EXPECT_EQ(state_.take_due_pages(UINT64_MAX), std::vector{page(0)});
}

}  // namespace
}  // namespace tarn
