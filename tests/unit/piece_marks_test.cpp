// Which pieces may have newer bytes in memory than in the store: the books, what lies on the device, a store's start.
#include "tiers/nvme/table/piece_marks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/support/memory_device.hpp"
#include "tests/support/store_identity.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {
namespace {

PageId piece(uint64_t number) {
    return PageId::of(1, number * piece_pages);
}

// The marks as a device has them.
class PieceMarksTest : public testing::Test {
  protected:
    void begin() {
        writes_ = marks_.begin_round(buffer_);
        for (const PieceMarks::Write& write : writes_)
            std::ranges::copy(write.bytes, device_.begin() + static_cast<ptrdiff_t>(write.offset_bytes));
    }
    void run_round() {
        begin();
        marks_.end_round();
    }
    PieceMarks loaded() const {
        PieceMarks marks(store_id);
        const std::span<const std::byte> device(device_);
        marks.load(device.subspan(marks_offsets[0], marks_size), device.subspan(marks_offsets[1], marks_size));
        return marks;
    }
    void format() {
        for (size_t place = 0; place < 2; ++place)
            std::ranges::copy(marks_.encode_all(place, buffer_),
                              device_.begin() + static_cast<ptrdiff_t>(marks_offsets[place]));
    }

    PieceMarksTest() { format(); }

    PieceMarks marks_{store_id};
    std::vector<std::byte> buffer_ = std::vector<std::byte>(marks_size);
    std::vector<std::byte> device_ = std::vector<std::byte>(uint64_t{1} << 20);
    std::vector<PieceMarks::Write> writes_;
};

TEST_F(PieceMarksTest, a_piece_is_marked_once_it_is_durable) {
    EXPECT_TRUE(marks_.want(piece(7)));
    EXPECT_FALSE(marks_.has(piece(7)));
    begin();
    EXPECT_EQ(writes_.size(), 1u);
    EXPECT_FALSE(marks_.has(piece(7)));
    EXPECT_TRUE(marks_.want(piece(9))) << "it comes too late for this round";
    marks_.end_round();
    EXPECT_TRUE(marks_.has(piece(7)));
    EXPECT_TRUE(marks_.has({piece(8).value - 1})) << "all of its pages are";
    EXPECT_FALSE(marks_.has(piece(8)));
    EXPECT_FALSE(marks_.has(piece(9)));
    EXPECT_FALSE(marks_.want(piece(7)));
    run_round();
    EXPECT_TRUE(marks_.has(piece(9)));
    begin();
    EXPECT_TRUE(writes_.empty()) << "nothing has changed";
}

TEST_F(PieceMarksTest, who_writes_in_sequence_waits_once_for_many_pieces) {
    for (const uint64_t number : {3, 4}) {
        EXPECT_TRUE(marks_.want(piece(number)));
        run_round();
    }
    for (uint64_t number = 3; number < 20; ++number) EXPECT_FALSE(marks_.want(piece(number))) << number;
    EXPECT_TRUE(marks_.want(piece(20)));
}

TEST_F(PieceMarksTest, what_is_loaded_is_what_was_durable) {
    for (uint64_t number = 0; number < 3000; number += 7) marks_.want(piece(number));
    run_round();
    const std::vector<PageId> pieces = marks_.pieces();
    EXPECT_EQ(pieces.size(), 429u);
    marks_.want(piece(10000));
    EXPECT_EQ(loaded().pieces(), pieces);
    EXPECT_FALSE(loaded().is_everything());
    EXPECT_TRUE(loaded().has(piece(7)));
}

TEST_F(PieceMarksTest, a_write_that_is_cut_short_takes_no_older_mark_with_it_and_is_noticed) {
    marks_.want(piece(1));
    run_round();
    marks_.want(piece(3));
    const std::vector<std::byte> before = device_;
    begin();
    ASSERT_EQ(writes_.size(), 1u);
    std::copy_n(before.begin() + static_cast<ptrdiff_t>(writes_[0].offset_bytes) + 64, page_size - 64,
                device_.begin() + static_cast<ptrdiff_t>(writes_[0].offset_bytes) + 64);
    const PieceMarks marks = loaded();
    EXPECT_EQ(marks.pieces(), std::vector{piece(1)});
    EXPECT_TRUE(marks.is_everything()) << "a mark that was told durable, and has rotted, looks the same";
    EXPECT_TRUE(marks.is_damaged());
    EXPECT_TRUE(marks.has(piece(3)));
}

TEST_F(PieceMarksTest, any_flipped_bit_of_either_place_is_found) {
    marks_.want(piece(1));
    run_round();
    const uint64_t at = writes_[0].offset_bytes % marks_offsets[1] % (uint64_t{128} << 10);
    for (const uint64_t offset : marks_offsets)
        for (uint64_t byte = 0; byte < page_size; byte += 13) {
            device_[offset + at + byte] ^= std::byte{16};
            EXPECT_TRUE(loaded().is_everything()) << byte;
            device_[offset + at + byte] ^= std::byte{16};
        }
    EXPECT_FALSE(loaded().is_everything());
}

TEST_F(PieceMarksTest, a_mark_that_is_taken_off_can_be_had_back_at_any_moment) {
    marks_.want(piece(1));
    EXPECT_FALSE(marks_.begin_clear(piece(1))) << "it is not durable yet";
    run_round();
    EXPECT_FALSE(marks_.begin_clear(piece(2)));
    ASSERT_TRUE(marks_.begin_clear(piece(1)));
    EXPECT_FALSE(marks_.has(piece(1)));
    EXPECT_FALSE(marks_.want(piece(1))) << "the device says it still";
    EXPECT_TRUE(marks_.has(piece(1)));
    marks_.end_clear(piece(1), true);
    EXPECT_TRUE(marks_.has(piece(1))) << "somebody has it";

    ASSERT_TRUE(marks_.begin_clear(piece(1)));
    marks_.want(piece(2));  // a round between, of the same block
    run_round();
    EXPECT_FALSE(marks_.has(piece(1))) << "who wants it must ask, or it would be taken off under him";
    marks_.end_clear(piece(1), true);
    EXPECT_FALSE(marks_.has(piece(1)));
    begin();
    EXPECT_TRUE(marks_.want(piece(1))) << "the round under way says that it is not marked";
    marks_.end_round();
    EXPECT_FALSE(marks_.has(piece(1)));
    run_round();
    EXPECT_TRUE(marks_.has(piece(1)));
    EXPECT_TRUE(loaded().has(piece(1)));
}

TEST_F(PieceMarksTest, when_there_are_too_many_all_count_as_marked) {
    // Apart by more than a block's worth of neighbours, so that each takes an entry of its own.
    for (uint64_t number = 0; !marks_.is_everything() && number < 100'000; ++number) {
        marks_.want(piece(number * 64));
        if (number % 1000 == 999) run_round();
    }
    EXPECT_TRUE(marks_.is_everything());
    const std::vector<PageId> wanted = marks_.pieces();
    run_round();
    const PieceMarks marks = loaded();
    EXPECT_TRUE(marks.is_everything());
    for (const PageId page : wanted) ASSERT_TRUE(marks.has(page)) << page.number();
}

// A store's marks over its starts.
class StoreMarks : public testing::Test {
  protected:
    static constexpr uint64_t size = uint64_t{16} << 20;

    void SetUp() override {
        loop_ = std::move(*Loop::create());
        device_ = std::make_unique<MemoryDevice>(size);
        ASSERT_TRUE(
            Store::format_device(*device_, {.identity = store_identity, .store = store_id, .size_bytes = size}));
        open();
    }
    void open() {
        auto device = std::make_unique<MemoryDevice>(*device_);
        in_use_ = device.get();
        auto opened = loop_->run_until_done(Store::open(*loop_, std::move(device), store_identity));
        ASSERT_TRUE(opened);
        store_ = std::move(*opened);
    }
    // What the store's device has at this moment is all that is left.
    void cut_power() {
        device_ = std::make_unique<MemoryDevice>(*in_use_);
        store_.reset();
        open();
    }
    Result<> run(Task<Result<>> task) { return loop_->run_until_done(std::move(task)); }
    bool knows_marks() const { return store_->marked_pieces().has_value(); }

    std::unique_ptr<Loop> loop_;
    std::unique_ptr<MemoryDevice> device_;  // as it is between two starts
    MemoryDevice* in_use_ = nullptr;
    std::unique_ptr<Store> store_;
};

TEST_F(StoreMarks, outlive_a_power_cut_and_end_with_a_stop_in_order) {
    EXPECT_TRUE(knows_marks());
    EXPECT_FALSE(store_->is_marked(piece(1)));
    ASSERT_TRUE(run(store_->mark(*loop_, {piece(1), piece(3)})));
    ASSERT_TRUE(run(store_->flush(*loop_)));
    cut_power();
    ASSERT_TRUE(knows_marks());
    EXPECT_TRUE(store_->is_marked(piece(1)));
    EXPECT_TRUE(store_->is_marked(piece(3)));
    EXPECT_FALSE(store_->is_marked(piece(2)));
    ASSERT_TRUE(store_->begin_unmark(piece(3)));
    store_->end_unmark(piece(3), true);
    ASSERT_TRUE(run(store_->write_marks(*loop_)));
    cut_power();
    EXPECT_EQ(*store_->marked_pieces(), std::vector{piece(1)});
    ASSERT_TRUE(run(store_->close(*loop_, true)));
    cut_power();
    ASSERT_TRUE(knows_marks());
    EXPECT_TRUE(store_->marked_pieces()->empty());
}

TEST_F(StoreMarks, of_an_older_tarn_there_are_none_so_that_anything_may_be_marked) {
    ASSERT_TRUE(run(store_->mark(*loop_, {piece(1)})));
    ASSERT_TRUE(run(store_->flush(*loop_)));
    cut_power();
    // It writes the superblocks without the flag, and knows nothing of the rest.
    auto block = make_page_buffer(1);
    const BlockBytes bytes(block.get(), page_size);
    for (const uint64_t offset : StoreLayout::superblock_offsets) {
        ASSERT_TRUE(device_->read_now(bytes, offset));
        Superblock superblock = *decode_superblock(bytes);
        superblock.has_marks = false;
        encode_superblock(superblock, bytes);
        ASSERT_TRUE(device_->write_now(bytes, offset));
    }
    store_.reset();
    open();
    EXPECT_FALSE(knows_marks());
    EXPECT_TRUE(store_->is_marked(piece(77)));
    cut_power();
    EXPECT_FALSE(knows_marks()) << "until somebody knows better";
    ASSERT_TRUE(run(store_->mark(*loop_, {piece(2)})));
    const uint64_t announced = store_->more_is_marked().count();
    ASSERT_TRUE(run(store_->mark_nothing_but(*loop_, {piece(2)})));
    EXPECT_TRUE(knows_marks());
    EXPECT_GT(store_->more_is_marked().count(), announced) << "from now on there is something to sweep";
    EXPECT_FALSE(store_->is_marked(piece(77)));
    cut_power();
    ASSERT_TRUE(knows_marks());
    EXPECT_TRUE(store_->is_marked(piece(2)));
    EXPECT_FALSE(store_->is_marked(piece(77)));
}

TEST_F(StoreMarks, a_damaged_block_makes_anything_marked_also_after_it_was_written_anew) {
    ASSERT_TRUE(run(store_->mark(*loop_, {piece(1)})));
    cut_power();
    auto block = make_page_buffer(1);
    ASSERT_TRUE(device_->read_now({block.get(), page_size}, marks_offsets[1] + 5 * page_size));
    block[100] ^= std::byte{1};
    ASSERT_TRUE(device_->write_now({block.get(), page_size}, marks_offsets[1] + 5 * page_size));
    store_.reset();
    open();
    EXPECT_FALSE(knows_marks());
    cut_power();
    EXPECT_FALSE(knows_marks());
    ASSERT_TRUE(run(store_->close(*loop_, true)));
    cut_power();
    EXPECT_TRUE(knows_marks());
    EXPECT_TRUE(store_->marked_pieces()->empty());
}

TEST_F(StoreMarks, that_could_not_be_written_fail_the_store) {
    in_use_->fail_writes(true);
    EXPECT_FALSE(run(store_->mark(*loop_, {piece(1)})));
    EXPECT_FALSE(store_->is_marked(piece(1)));
    EXPECT_TRUE(store_->failed());
}

}  // namespace
}  // namespace tarn
