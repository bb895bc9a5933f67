// Store's journal and checksums on real files: what survives, what is found out, and what is refused.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/support/scratch_directory.hpp"
#include "tests/support/store_identity.hpp"
#include "tiers/nvme/device/checksum.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/idle_checkpointer.hpp"
#include "tiers/nvme/journal/scan.hpp"
#include "tiers/nvme/store.hpp"
#include "tiers/nvme/store_inspection.hpp"

namespace tarn {
namespace {

class StoreJournal : public testing::Test {
  protected:
    StoreJournal() : page_(make_page_buffer(pages_max)) {
        path_ = directory_ / "store";
        loop_ = std::move(*Loop::create());
        EXPECT_TRUE(Store::format(path_, uint64_t{8} << 20, store_identity, false));
        EXPECT_TRUE(open());
    }
    ~StoreJournal() override { drop(); }

    static constexpr size_t pages_max = 64;

    // As if the process had ended.
    void drop() {
        if (store_) loop_->run_until_done(store_->settle(*loop_));
        store_.reset();
        loop_->run_until_done(pause(*loop_));  // the ring gives back its reference to the file, and the lock
    }
    static Task<bool> pause(Loop& loop) { co_return co_await loop.sleep(std::chrono::milliseconds(1)); }
    Result<> open() {
        drop();
        Result<std::unique_ptr<Store>> store = loop_->run_until_done(Store::open(*loop_, path_, store_identity));
        if (!store) return fail(store.error());
        store_ = std::move(*store);
        return {};
    }
    // Each sector of the page has its own value; only the dirty ones are said to have changed.
    Result<> write(uint64_t page, std::array<uint8_t, sectors_per_page> sectors, DirtyMask dirty = all_sectors,
                   Tenure tenure = 1) {
        for (size_t i = 0; i < sectors.size(); ++i) std::memset(page_.get() + i * sector_size, sectors[i], sector_size);
        const PageWrite write{.page = PageId::of(1, page), .tenure = tenure, .dirty = dirty, .bytes = page_.get()};
        return loop_->run_until_done(store_->write(*loop_, std::span(&write, 1)));
    }
    Result<> fill(uint64_t page, uint8_t value) {
        std::array<uint8_t, sectors_per_page> sectors;
        sectors.fill(value);
        return write(page, sectors);
    }
    Result<> write_many(uint64_t first, size_t count, uint8_t value, Atomicity atomicity = Atomicity::page) {
        std::vector<PageWrite> writes;
        std::memset(page_.get(), value, pages_max * page_size);
        for (size_t i = 0; i < count; ++i)
            writes.push_back(
                {.page = PageId::of(1, first + i), .tenure = 1, .bytes = page_.get() + (i % pages_max) * page_size});
        return loop_->run_until_done(store_->write(*loop_, writes, atomicity));
    }
    Result<> flush() { return loop_->run_until_done(store_->flush(*loop_)); }
    Result<> read(uint64_t page) {
        return loop_->run_until_done(
            store_->read(*loop_, PageId::of(1, page), std::span<std::byte, page_size>(page_.get(), page_size)));
    }
    int value_of(uint64_t page, size_t sector = 0) {
        return read(page) ? static_cast<int>(page_[sector * sector_size]) : -1;
    }
    // Changes a byte behind the store's back.
    void spoil(uint64_t offset) const {
        const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
        char byte = 0;
        ASSERT_EQ(::pread(fd.get(), &byte, 1, static_cast<off_t>(offset)), 1);
        byte = static_cast<char>(byte ^ 0x40);
        ASSERT_EQ(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(offset)), 1);
    }
    // On the device.
    uint64_t start_of_last_batch() const {
        StoreFile file = std::move(*StoreFile::open_read_only(path_));
        const Superblock superblock = *read_superblock(file);
        const JournalScan scan = *scan_journal(file, superblock, [](const FoundRecord&) { return Result<>(); });
        const uint64_t start =
            scan.boundaries.size() < 2 ? superblock.journal_tail : scan.boundaries[scan.boundaries.size() - 2].position;
        return StoreLayout::journal_offset + start % superblock.geometry.journal_size;
    }
    StoreLayout layout() const { return StoreLayout::of(StoreGeometry::of_device(uint64_t{8} << 20)); }

    ScratchDirectory directory_;
    std::string path_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Store> store_;
    PageBuffer page_;
};

TEST_F(StoreJournal, sectors_go_over_what_lies_beneath) {
    ASSERT_TRUE(write(7, {1, 2, 3, 4, 5, 6, 7, 8}));
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
    EXPECT_EQ(store_->journal_status().used_bytes, 0u) << "all of it is in place";
    ASSERT_TRUE(write(7, {1, 2, 33, 4, 5, 6, 7, 8}, 0b100, 5));
    ASSERT_TRUE(write(7, {1, 2, 33, 4, 5, 6, 7, 88}, 0b10000000, 6));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(7, 0), 1);
    EXPECT_EQ(value_of(7, 2), 33);
    EXPECT_EQ(value_of(7, 7), 88);
    EXPECT_EQ(store_->tenure_of(PageId::of(1, 7)), 6u);
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(7, 2), 33);
    EXPECT_EQ(store_->tenure_of(PageId::of(1, 7)), 6u) << "the table has it, too";
    EXPECT_EQ(store_->tenure_of(PageId::of(1, 8)), 0u);
}

TEST_F(StoreJournal, the_ring_goes_round_many_times) {
    for (int round = 0; round < 12; ++round) {
        for (uint64_t page = 0; page < 60; ++page) ASSERT_TRUE(fill(page * 5, static_cast<uint8_t>(round + page)));
        ASSERT_TRUE(flush());
    }
    EXPECT_GT(store_->journal_status().checkpoints, 0u);
    ASSERT_TRUE(open());
    for (uint64_t page = 0; page < 60; ++page) EXPECT_EQ(value_of(page * 5), static_cast<int>(11 + page));
}

TEST_F(StoreJournal, a_group_has_its_limit_and_is_there_as_a_whole) {
    EXPECT_EQ(write_many(0, store_->group_pages_max() + 1, 1, Atomicity::group).error().code, Errc::invalid);
    ASSERT_TRUE(write_many(0, store_->group_pages_max(), 2, Atomicity::group));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(0), 2);
    EXPECT_EQ(value_of(store_->group_pages_max() - 1), 2);
}

TEST_F(StoreJournal, a_group_lies_in_one_batch) {
    // So many that the batch they begin has no room for all of the group, but for a part of it.
    for (uint64_t page = 0; page < 40; ++page) ASSERT_TRUE(fill(page * 3, 1));
    ASSERT_TRUE(write_many(300, 30, 2, Atomicity::group));
    ASSERT_TRUE(flush());
    const uint64_t end = store_->journal_status().used_bytes;
    drop();
    // As after a power cut that tore the last batch.
    spoil(StoreLayout::journal_offset + end - 4 * page_size);
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(39 * 3), 1) << "the batch before it is whole";
    for (uint64_t page = 300; page < 330; ++page) EXPECT_EQ(value_of(page), 0) << page;
}

TEST_F(StoreJournal, a_rotten_page_fails_alone) {
    ASSERT_TRUE(write_many(0, 20, 9));
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
    drop();
    spoil(layout().data_offset + 3 * page_size + 100);
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(2), 9);
    const Result<> bad = read(3);
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, Errc::corrupt);
    EXPECT_EQ(value_of(4), 9);
    EXPECT_EQ(store_->bad_page_count(), 1u);
    ASSERT_TRUE(fill(3, 4)) << "written anew it is good";
    EXPECT_EQ(value_of(3), 4);
}

TEST_F(StoreJournal, a_page_in_the_place_of_another_is_found_out) {
    ASSERT_TRUE(write_many(0, 16, 1));
    ASSERT_TRUE(fill(1, 2));
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
    drop();
    std::vector<std::byte> before(page_size);
    {
        const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
        const auto at = static_cast<off_t>(layout().data_offset);
        ASSERT_EQ(::pread(fd.get(), before.data(), before.size(), at), static_cast<ssize_t>(before.size()));
        ASSERT_EQ(::pwrite(fd.get(), before.data(), page_size, at + page_size), static_cast<ssize_t>(page_size));
    }
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(0), 1);
    EXPECT_FALSE(read(1));
}

TEST_F(StoreJournal, a_bad_place_of_the_table_is_made_good_at_the_next_start) {
    ASSERT_TRUE(write_many(0, 16, 1));
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
    for (const uint64_t place : {1, 0, 1}) {
        drop();
        spoil(layout().table_offsets[place] + 100);
        ASSERT_TRUE(open()) << "the other place is good";
        EXPECT_EQ(value_of(3), 1);
    }
}

TEST_F(StoreJournal, a_hole_in_the_journal_is_refused_and_its_end_is_not) {
    for (uint8_t i = 1; i <= 5; ++i) {
        ASSERT_TRUE(fill(i, i));
        ASSERT_TRUE(flush());
    }
    drop();
    const uint64_t batch = 2 * page_size;  // one whole page with its record
    // The last one: nothing proves that it had been durable.
    spoil(StoreLayout::journal_offset + 4 * batch + 200);
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(4), 4);
    EXPECT_EQ(value_of(5), 0);
    ASSERT_TRUE(fill(6, 6));
    ASSERT_TRUE(flush());
    drop();
    spoil(StoreLayout::journal_offset + 1 * batch + 200);
    const Result<> refused = open();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::corrupt);
}

TEST_F(StoreJournal, rot_in_the_last_batch_takes_nothing_that_was_there_before_it) {
    // Most of the ring at once: the tail moves on over pages that are moved only now, as records say that lie behind
    // it.
    constexpr uint64_t page_count = 600;
    uint64_t next = 0;
    const auto fill_next = [&] {
        const uint64_t page = next++ * 7 % page_count;  // no two in a row: they go through the journal
        return fill(page, static_cast<uint8_t>(page % 200 + 1));
    };
    for (int life = 0; life < 6; ++life) {
        while (store_->journal_status().used_bytes <= uint64_t{768} << 10) ASSERT_TRUE(fill_next());
        ASSERT_TRUE(flush());
        const uint64_t known = next;
        const uint64_t checkpoints = store_->journal_status().checkpoints;
        ASSERT_TRUE(fill_next());
        loop_->run_until_done(store_->settle(*loop_));
        ASSERT_GT(store_->journal_status().checkpoints, checkpoints);
        drop();
        spoil(start_of_last_batch() + 200);
        ASSERT_TRUE(open());
        next = known;  // what came later may be gone, and is written again
        for (uint64_t i = 0; i < std::min(known, page_count); ++i) {
            const uint64_t page = i * 7 % page_count;
            ASSERT_EQ(value_of(page), page % 200 + 1) << page << ", life " << life;
        }
    }
}

TEST_F(StoreJournal, a_page_that_was_moved_and_rots_is_bad_and_not_gone) {
    // Every other page, so that they go through the journal.
    for (uint64_t page = 0; store_->journal_status().used_bytes <= uint64_t{768} << 10; page += 2)
        ASSERT_TRUE(fill(page % 512, 1));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(fill(511, 1));
    loop_->run_until_done(store_->settle(*loop_));
    ASSERT_GT(store_->journal_status().checkpoints, 0u);
    drop();
    // Without what proves the records of the moves, which are the last ones then.
    spoil(start_of_last_batch() + 200);
    spoil(layout().data_offset);
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(0), -1);
    EXPECT_EQ(value_of(2), 1);
}

TEST_F(StoreJournal, while_nobody_writes_most_of_the_ring_is_freed) {
    for (uint64_t page = 0; store_->journal_status().used_bytes <= uint64_t{512} << 10; page += 2)
        ASSERT_TRUE(fill(page % 512, 1));
    ASSERT_TRUE(flush());
    loop_->run_until_done(store_->settle(*loop_));
    EXPECT_EQ(store_->journal_status().checkpoints, 0u) << "it is put off";
    store_->catch_up(*loop_);
    loop_->run_until_done(store_->settle(*loop_));
    EXPECT_LE(store_->journal_status().used_bytes, uint64_t{128} << 10);
    const uint64_t checkpoints = store_->journal_status().checkpoints;
    store_->catch_up(*loop_);
    loop_->run_until_done(store_->settle(*loop_));
    EXPECT_EQ(store_->journal_status().checkpoints, checkpoints) << "nothing is left to do";
    ASSERT_TRUE(open());
    for (uint64_t page = 0; page < 100; page += 2) EXPECT_EQ(value_of(page), 1);
}

TEST_F(StoreJournal, an_idle_checkpointer_frees_the_ring_of_its_own_accord) {
    IdleCheckpointer checkpointer(*store_, *loop_);
    for (int burst = 0; burst < 3; ++burst) {
        for (uint64_t page = 0; store_->journal_status().used_bytes <= uint64_t{512} << 10; page += 2)
            ASSERT_TRUE(fill(page % 512, burst + 1));
        ASSERT_TRUE(flush());
        while (store_->journal_status().used_bytes > uint64_t{128} << 10) loop_->run_until_done(pause(*loop_));
    }
    loop_->run_until_done(checkpointer.close());
}

TEST_F(StoreJournal, what_recovery_believed_is_never_again_taken_for_an_end) {
    ASSERT_TRUE(fill(1, 1));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(open()) << "after a crash";
    EXPECT_EQ(value_of(1), 1);
    drop();
    spoil(StoreLayout::journal_offset + 200);
    const Result<> refused = open();
    ASSERT_FALSE(refused) << "it was read once: it cannot be one that was never written";
    EXPECT_EQ(refused.error().code, Errc::corrupt);
}

TEST_F(StoreJournal, what_an_earlier_crash_left_in_the_ring_is_not_believed) {
    // One round of two batches: the first as large as any, and of the second page 500.
    constexpr uint64_t records_max = ((256 << 10) - sizeof(BatchHeader)) / (sizeof(JournalRecord) + page_size);
    for (uint64_t i = 0; i < records_max; ++i) ASSERT_TRUE(fill(2 * i, 1));
    ASSERT_TRUE(fill(500, 1));
    ASSERT_TRUE(flush());
    drop();
    spoil(StoreLayout::journal_offset + 200);  // the crash lost of the round only its beginning
    ASSERT_TRUE(open());
    EXPECT_EQ(value_of(500), 0);
    // Up to where the second batch lies.
    for (uint64_t i = 0; i < records_max; ++i) ASSERT_TRUE(fill(2 * i, 2));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(open());
    EXPECT_EQ(store_->journal_status().used_bytes, (256u << 10) + page_size) << "what was written, and what proves it";
    EXPECT_EQ(value_of(0), 2);
    EXPECT_EQ(value_of(500), 0);
}

// Batches whose checksum is right and whose records are not.
TEST_F(StoreJournal, lies_with_a_good_checksum_are_refused) {
    drop();
    Result<StoreFile> file = StoreFile::open(path_);
    ASSERT_TRUE(file);
    const Result<Superblock> superblock = read_superblock(*file);
    ASSERT_TRUE(superblock);
    const auto open_with = [&](JournalRecord record, uint32_t record_count) {
        std::memset(page_.get(), 0, page_size);
        BatchHeader header{.size_bytes = page_size, .record_count = record_count};
        std::memcpy(page_.get() + sizeof header, &record, sizeof record);
        std::memcpy(page_.get(), &header, sizeof header);
        const std::span<std::byte> batch(page_.get(), page_size);
        header.checksum = batch_checksum(superblock->store, batch);
        std::memcpy(page_.get(), &header, sizeof header);
        EXPECT_TRUE(file->write_now(batch, StoreLayout::journal_offset));
        const Result<StoreInspection> found = loop_->run_until_done(inspect_store(*loop_, *file));
        return found ? Errc::invalid : found.error().code;  // invalid: it was believed
    };
    const JournalRecord good{.kind = RecordKind::clear, .page = PageId::of(1, 0)};
    EXPECT_EQ(open_with(good, 1), Errc::invalid);
    EXPECT_EQ(open_with(good, 2), Errc::corrupt) << "the second record is nothing";
    EXPECT_EQ(open_with(good, 1000000), Errc::corrupt);
    const auto refused = [&](auto change) {
        JournalRecord lie = good;
        change(lie);
        return open_with(lie, 1) == Errc::corrupt;
    };
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.kind = static_cast<RecordKind>(9); }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.slab = 1u << 31; }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.slab = static_cast<SlabIndex>(pages_max); }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.count = 0; }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.count = pages_per_slab + 1; }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.page = PageId::of(1, 200), lie.count = 100; }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.flags = 0xff; }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.kind = RecordKind::delta; }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.kind = RecordKind::delta, lie.dirty = 0xff; }));
    EXPECT_TRUE(refused([](JournalRecord& lie) { lie.kind = RecordKind::in_place, lie.count = 256; }));
}

TEST_F(StoreJournal, other_formats_are_refused_with_the_reason) {
    alignas(page_size) std::array<std::byte, page_size> block;
    for (const uint32_t format : {1u, 2u, 4u}) {
        encode_superblock({.identity = store_identity,
                           .store = {1},
                           .geometry = StoreGeometry::of_device(uint64_t{8} << 20),
                           .generation = 1},
                          block);
        std::memcpy(block.data() + 8, &format, sizeof format);
        std::memset(block.data() + 100, 0, 4);
        const uint32_t checksum = crc32c(block);
        std::memcpy(block.data() + 100, &checksum, sizeof checksum);
        const Result<Superblock> decoded = decode_superblock(block);
        ASSERT_FALSE(decoded);
        EXPECT_EQ(decoded.error().code, Errc::unsupported);
        EXPECT_NE(std::string(decoded.error().where)
                      .find(format == 1   ? "format 1"
                            : format == 2 ? "--upgrade"
                                          : "newer"),
                  std::string::npos);
    }
}

TEST_F(StoreJournal, the_tools_change_nothing) {
    ASSERT_TRUE(write_many(0, 30, 3));
    ASSERT_TRUE(fill(300, 4));
    ASSERT_TRUE(flush());
    drop();
    const auto bytes_of_store = [&] {
        std::vector<char> bytes(uint64_t{8} << 20);
        const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
        EXPECT_EQ(::pread(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
        return bytes;
    };
    const std::vector<char> before = bytes_of_store();
    {
        Result<StoreFile> file = StoreFile::open_read_only(path_);
        ASSERT_TRUE(file);
        const Result<StoreInspection> found = loop_->run_until_done(check_store(*loop_, *file));
        ASSERT_TRUE(found) << found.error().where;
        EXPECT_EQ(found->pages_checked, 31u);
        EXPECT_EQ(found->bad_page_count, 0u);
        EXPECT_EQ(found->journal.record_count, 2u);
        ASSERT_EQ(found->volumes.size(), 1u);
        EXPECT_EQ(found->volumes[0].allocated_bytes, 2 * slab_size);
    }
    EXPECT_EQ(bytes_of_store(), before);
    EXPECT_EQ(store_, nullptr);
    spoil(layout().data_offset + 5 * page_size);
    Result<StoreFile> file = StoreFile::open_read_only(path_);
    ASSERT_TRUE(file);
    const Result<StoreInspection> found = loop_->run_until_done(check_store(*loop_, *file));
    // The journal's last round proves nothing: the page counts as never written.
    ASSERT_TRUE(found);
    EXPECT_EQ(found->pages_checked, 30u);
}

TEST_F(StoreJournal, the_books_are_small) {
    for (const uint64_t size : {uint64_t{1} << 30, uint64_t{1} << 36, uint64_t{1} << 40}) {
        const StoreGeometry geometry = StoreGeometry::of_device(size);
        const uint64_t books = Store::books_bytes_max(geometry) - Journal::staging_size(geometry.journal_size);
        EXPECT_LE(books * 200, size) << size;
    }
}

}  // namespace
}  // namespace tarn
