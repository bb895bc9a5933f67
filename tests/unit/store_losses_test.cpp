// The list of losses, and the upgrade that brings it into a store of format 2.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/support/scratch_directory.hpp"
#include "tests/support/store_identity.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/store.hpp"
#include "tiers/nvme/store_upgrade.hpp"
#include "tiers/nvme/table/loss_list.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {
namespace {

constexpr uint64_t store_size = uint64_t{8} << 20;

Loss loss_of(VolumeId volume, uint64_t first, uint64_t last, uint32_t generation = 0) {
    return {.first = PageId::of(volume, first),
            .last = PageId::of(volume, last),
            .page_count = last - first + 1,
            .at_ns = 1,
            .generation = generation,
            .host = 1};
}

bool covers(const std::vector<Loss>& losses, const Loss& wanted) {
    return std::ranges::any_of(losses, [&](const Loss& each) {
        return each.first <= wanted.first && each.last >= wanted.last && each.generation >= wanted.generation;
    });
}

TEST(LossList, too_many_runs_become_fewer_that_have_all_their_pages) {
    std::mt19937_64 random(7);
    std::vector<Loss> many;
    for (uint32_t i = 0; i < 5000; ++i) {
        const uint64_t first = random() % 100000;
        many.push_back(loss_of(1 + i % 3, first, first + random() % 4, 1 + i % 5));
    }
    std::vector<Loss> few = many;
    bound_losses(few);
    EXPECT_LE(few.size(), losses_max);
    EXPECT_GT(few.size(), losses_max / 2);
    for (const Loss& loss : many) ASSERT_TRUE(covers(few, loss));
    for (const Loss& loss : few) EXPECT_EQ(loss.first.volume(), loss.last.volume()) << "joined over volumes";
}

TEST(LossList, of_the_same_pages_the_newest_loss_counts) {
    std::vector<Loss> losses = {loss_of(1, 3, 9, 4), loss_of(1, 3, 9, 6), loss_of(1, 3, 9, 5), loss_of(1, 3, 8, 1)};
    bound_losses(losses);
    ASSERT_EQ(losses.size(), 2u);
    EXPECT_EQ(losses[1].generation, 6u);
}

TEST(LossList, is_what_was_encoded_and_any_flipped_bit_is_found) {
    LossList list{.sequence = 9, .losses = {}};
    for (uint32_t i = 0; i < 100; ++i) list.losses.push_back(loss_of(1, i * 10, i * 10 + 3, i));
    std::vector<std::byte> bytes(loss_list_size_max);
    const size_t used = encode_losses(store_id, list, bytes).size();
    EXPECT_EQ(used, 2 * page_size);
    const Result<LossList> decoded = decode_losses(store_id, bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->sequence, 9u);
    EXPECT_EQ(decoded->losses, list.losses);
    EXPECT_FALSE(decode_losses({6}, bytes)) << "of another store";
    for (size_t at = 0; at < 64 + 100 * 48; ++at) {
        bytes[at] ^= std::byte{4};
        EXPECT_FALSE(decode_losses(store_id, bytes)) << at;
        bytes[at] ^= std::byte{4};
    }
}

class StoreLosses : public testing::Test {
  protected:
    StoreLosses() {
        path_ = directory_ / "store";
        loop_ = std::move(*Loop::create());
        EXPECT_TRUE(Store::format(path_, store_size, store_identity, false));
    }
    ~StoreLosses() override { drop(); }

    void drop() {
        if (store_) loop_->run_until_done(store_->settle(*loop_));
        store_.reset();
        loop_->run_until_done(pause(*loop_));  // lets the ring give back its reference to the file
    }
    Result<> open(OpenOptions options = {}, const StoreIdentity& expected = store_identity) {
        drop();
        auto opened = loop_->run_until_done(Store::open(*loop_, path_, expected, options));
        if (!opened) return fail(opened.error());
        store_ = std::move(*opened);
        return {};
    }
    Result<uint32_t> record(std::vector<Loss> losses) {
        return loop_->run_until_done(store_->record_losses(*loop_, std::move(losses)));
    }
    void write(uint64_t page, uint8_t value) {
        std::memset(buffer_.get(), value, page_size);
        const PageWrite page_write{.page = PageId::of(1, page), .bytes = buffer_.get()};
        ASSERT_TRUE(loop_->run_until_done(store_->write(*loop_, {&page_write, 1})));
        ASSERT_TRUE(loop_->run_until_done(store_->flush(*loop_)));
    }
    int read(uint64_t page) {
        const std::span<std::byte, page_size> into(buffer_.get(), page_size);
        if (!loop_->run_until_done(store_->read(*loop_, PageId::of(1, page), into))) return -1;
        return static_cast<int>(into[0]);
    }
    // The file as a tool would change it.
    void change(uint64_t offset, std::span<const std::byte> bytes) {
        drop();
        const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
        ASSERT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
                  static_cast<ssize_t>(bytes.size()));
    }
    void spoil(uint64_t offset) { change(offset, std::vector<std::byte>(page_size, std::byte{0xee})); }
    // As a tarn before this one would have left it: what is new in format 3 is garbage.
    void make_format_2(bool both_superblocks = true) {
        drop();
        Superblock superblock;
        {
            Result<StoreFile> file = StoreFile::open_read_only(path_);
            ASSERT_TRUE(file);
            superblock = *read_superblock(*file);
        }
        superblock.is_complete = false;
        alignas(page_size) std::array<std::byte, page_size> block;
        encode_superblock(superblock, block, 2);
        if (both_superblocks) change(StoreLayout::superblock_offsets[0], block);
        change(StoreLayout::superblock_offsets[1], block);
        if (both_superblocks)
            for (const uint64_t offset : loss_list_offsets) spoil(offset);
    }

    static Task<bool> pause(Loop& loop) { co_return co_await loop.sleep(std::chrono::milliseconds(1)); }

    ScratchDirectory directory_;
    std::string path_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Store> store_;
    PageBuffer buffer_ = make_page_buffer(1);
};

TEST_F(StoreLosses, are_there_after_a_restart) {
    ASSERT_TRUE(open());
    EXPECT_TRUE(store_->losses().empty());
    EXPECT_EQ(record({loss_of(1, 5, 7), loss_of(2, 0, 0)}).value(), 1u);
    EXPECT_EQ(record({loss_of(1, 100, 100)}).value(), 2u);
    EXPECT_EQ(store_->loss_generation(), 2u);
    const std::vector<Loss> before = store_->losses();
    ASSERT_EQ(before.size(), 3u);
    ASSERT_TRUE(open());
    EXPECT_EQ(store_->losses(), before);
    EXPECT_EQ(store_->loss_generation(), 2u);
}

TEST_F(StoreLosses, one_bad_copy_is_repaired_by_the_other) {
    for (size_t bad = 0; bad < 2; ++bad) {
        ASSERT_TRUE(open());
        ASSERT_TRUE(record({loss_of(1, bad, bad)}));
        const std::vector<Loss> before = store_->losses();
        spoil(loss_list_offsets[bad]);
        ASSERT_TRUE(open());
        EXPECT_EQ(store_->losses(), before);
        spoil(loss_list_offsets[1 - bad]);
        ASSERT_TRUE(open());
        EXPECT_EQ(store_->losses(), before) << "it was not repaired";
    }
}

TEST_F(StoreLosses, without_a_good_copy_everything_counts_as_lost) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(record({loss_of(1, 5, 5)}));
    for (const uint64_t offset : loss_list_offsets) spoil(offset);
    ASSERT_TRUE(open());
    ASSERT_EQ(store_->losses().size(), 1u);
    EXPECT_TRUE(covers(store_->losses(), loss_of(volume_id_max, 0, page_number_mask, 2)));
    EXPECT_EQ(store_->loss_generation(), 2u);
}

TEST_F(StoreLosses, only_who_closed_it_as_complete_has_left_nothing_in_memory) {
    ASSERT_TRUE(open());
    EXPECT_TRUE(store_->was_complete()) << "it is new";
    ASSERT_TRUE(open());
    EXPECT_FALSE(store_->was_complete());
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_, true)));
    ASSERT_TRUE(open());
    EXPECT_TRUE(store_->was_complete());
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
    ASSERT_TRUE(open());
    EXPECT_FALSE(store_->was_complete());
}

TEST_F(StoreLosses, a_store_of_format_2_is_upgraded_only_when_told_to) {
    ASSERT_TRUE(open());
    write(3, 0x33);
    make_format_2();
    const Result<> refused = open();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::unsupported);
    EXPECT_NE(std::string(refused.error().where).find("--upgrade"), std::string::npos);
    EXPECT_EQ(open({.upgrade = true}, {.cluster = {0xc2}, .host = 2}).error().code, Errc::refused);
    EXPECT_EQ(open().error().code, Errc::unsupported) << "another host's store was changed";
    ASSERT_TRUE(open({.upgrade = true}));
    EXPECT_EQ(read(3), 0x33) << "what the journal had";
    EXPECT_TRUE(store_->losses().empty());
    EXPECT_FALSE(store_->was_complete()) << "its journal was in use";
    EXPECT_EQ(store_->home_epoch(), 2u);
    ASSERT_TRUE(open());
    ASSERT_TRUE(open({.upgrade = true})) << "there is nothing to do";
    EXPECT_EQ(read(3), 0x33);
}

TEST_F(StoreLosses, an_upgraded_store_that_was_closed_in_order_lacks_nothing) {
    ASSERT_TRUE(open());
    write(3, 0x33);
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
    make_format_2();
    ASSERT_TRUE(open({.upgrade = true}));
    EXPECT_TRUE(store_->was_complete());
    EXPECT_EQ(read(3), 0x33);
}

TEST_F(StoreLosses, an_upgrade_that_was_cut_short_is_completed) {
    ASSERT_TRUE(open());
    write(3, 0x33);
    make_format_2(false);
    EXPECT_EQ(open().error().code, Errc::unsupported);
    ASSERT_TRUE(open({.upgrade = true}));
    EXPECT_EQ(read(3), 0x33);
    make_format_2();
    spoil(StoreLayout::superblock_offsets[0]);
    EXPECT_EQ(open().error().code, Errc::unsupported);
    ASSERT_TRUE(open({.upgrade = true}));
    EXPECT_EQ(read(3), 0x33);
}

}  // namespace
}  // namespace tarn
