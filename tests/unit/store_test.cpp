// Store on real files.
#include "tiers/nvme/store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "tests/support/scratch_directory.hpp"
#include "tests/support/store_identity.hpp"

namespace tarn {
namespace {

constexpr uint64_t small_store = uint64_t{8} << 20;

class StoreTest : public testing::Test {
  protected:
    StoreTest() {
        path_ = directory_ / "store";
        Result<std::unique_ptr<Loop>> loop = Loop::create();
        EXPECT_TRUE(loop);
        loop_ = std::move(*loop);
        Result<Mapping> pages = Mapping::create(page_count * page_size);
        EXPECT_TRUE(pages);
        pages_ = std::move(*pages);
    }
    ~StoreTest() override { drop(); }

    static constexpr size_t page_count = 1024;

    std::byte* buffer(size_t i) const { return pages_.bytes().data() + i * page_size; }

    void format(uint64_t size_bytes = small_store) const {
        const Result<> formatted = Store::format(path_, size_bytes, store_identity, false);
        ASSERT_TRUE(formatted) << formatted.error().where;
    }
    // As if the process had ended: what was not flushed is gone.
    void drop() {
        if (store_) loop_->run_until_done(store_->settle(*loop_));
        store_.reset();
    }
    Result<> open(const StoreIdentity& expected = store_identity) {
        drop();
        Result<std::unique_ptr<Store>> store = loop_->run_until_done(Store::open(*loop_, path_, expected));
        if (!store) return fail(store.error());
        store_ = std::move(*store);
        return {};
    }
    // Lets the ring give back its reference to the file, and with it the lock.
    void close() {
        drop();
        loop_->run_until_done(pause(*loop_));
    }
    static Task<bool> pause(Loop& loop) { co_return co_await loop.sleep(std::chrono::milliseconds(1)); }
    // Says why, where it fails.
    testing::AssertionResult opens() {
        const Result<> opened = open();
        if (opened) return testing::AssertionSuccess();
        return testing::AssertionFailure() << opened.error().where << ": " << std::strerror(opened.error().sys_errno);
    }
    Errc open_error(const StoreIdentity& expected = store_identity) {
        const Result<> opened = open(expected);
        EXPECT_FALSE(opened);
        return opened ? Errc::io : opened.error().code;
    }
    void format_and_open(uint64_t size_bytes = small_store) {
        format(size_bytes);
        const Result<> opened = open();
        ASSERT_TRUE(opened) << opened.error().where;
    }
    Result<> write(VolumeId volume, uint64_t page, uint8_t value, size_t count = 1) {
        std::vector<PageWrite> writes;
        for (size_t i = 0; i < count; ++i) {
            std::memset(buffer(i), value, page_size);
            writes.push_back({.page = PageId::of(volume, page + i), .bytes = buffer(i)});
        }
        return loop_->run_until_done(store_->write(*loop_, writes));
    }
    // The value of all bytes of the page; -1 when it is mixed or cannot be read.
    int read(VolumeId volume, uint64_t page) {
        std::memset(buffer(0), 0xee, page_size);
        const std::span<std::byte, page_size> into(buffer(0), page_size);
        if (!loop_->run_until_done(store_->read(*loop_, PageId::of(volume, page), into))) return -1;
        for (const std::byte byte : into)
            if (byte != into[0]) return -1;
        return static_cast<int>(into[0]);
    }
    Result<> zero(VolumeId volume, uint64_t page, uint64_t count, bool keep_space = false) {
        return loop_->run_until_done(store_->zero(*loop_, PageId::of(volume, page), count, keep_space));
    }
    Result<> flush() { return loop_->run_until_done(store_->flush(*loop_)); }
    uint64_t slab_count() const { return store_->space().total_bytes / slab_size; }

    ScratchDirectory directory_;
    std::string path_;
    std::unique_ptr<Loop> loop_;
    Mapping pages_;
    std::unique_ptr<Store> store_;
};

TEST_F(StoreTest, pages_round_trip_and_the_rest_is_zeros) {
    format_and_open();
    ASSERT_TRUE(write(1, 300, 0x5a));
    EXPECT_EQ(read(1, 300), 0x5a);
    EXPECT_EQ(read(1, 299), 0);
    EXPECT_EQ(read(1, 301), 0);
    EXPECT_EQ(read(2, 300), 0);
    EXPECT_EQ(read(1, page_number_mask), 0);
    EXPECT_EQ(store_->space().allocated_bytes, slab_size);
    EXPECT_EQ(store_->volumes(), std::vector<VolumeId>{1});
    EXPECT_EQ(store_->allocated_bytes(1), slab_size);
    EXPECT_EQ(store_->allocated_bytes(2), 0u);
}

TEST_F(StoreTest, what_was_flushed_is_there_after_a_reopen) {
    format_and_open();
    ASSERT_TRUE(write(1, 0, 0x11, 600));
    ASSERT_TRUE(write(volume_id_max, page_number_mask, 0x22));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(write(1, 700, 0x33));  // in a slab that is durable: its page is not
    ASSERT_TRUE(write(3, 0, 0x44));    // nor is this slab
    ASSERT_TRUE(opens());
    for (uint64_t page = 0; page < 600; ++page) ASSERT_EQ(read(1, page), 0x11) << page;
    EXPECT_EQ(read(volume_id_max, page_number_mask), 0x22);
    EXPECT_EQ(read(1, 700), 0);
    EXPECT_EQ(read(3, 0), 0);
    EXPECT_EQ(store_->volumes(), (std::vector<VolumeId>{1, volume_id_max}));
}

TEST_F(StoreTest, a_run_crosses_slabs_and_holes) {
    format_and_open();
    ASSERT_TRUE(write(1, 250, 0x11, 10));
    ASSERT_TRUE(write(1, 262, 0x22, 2));
    std::vector<std::byte*> into;
    for (size_t i = 0; i < 20; ++i) {
        std::memset(buffer(i), 0xee, page_size);
        into.push_back(buffer(i));
    }
    ASSERT_TRUE(loop_->run_until_done(store_->read_run(*loop_, PageId::of(1, 248), into)));
    for (uint64_t i = 0; i < 20; ++i) {
        const uint64_t page = 248 + i;
        const int expected = page >= 250 && page < 260 ? 0x11 : page == 262 || page == 263 ? 0x22 : 0;
        EXPECT_EQ(static_cast<int>(into[i][0]), expected) << page;
        EXPECT_EQ(static_cast<int>(into[i][page_size - 1]), expected) << page;
    }
}

TEST_F(StoreTest, every_start_has_a_new_home_epoch) {
    format_and_open();
    EXPECT_EQ(store_->home_epoch(), 1u);
    ASSERT_TRUE(opens());
    EXPECT_EQ(store_->home_epoch(), 2u);
    EXPECT_EQ(store_->loss_generation(), 0u);
    ASSERT_TRUE(loop_->run_until_done(store_->record_losses(*loop_, {})));
    ASSERT_TRUE(opens());
    EXPECT_EQ(store_->home_epoch(), 3u);
    EXPECT_EQ(store_->loss_generation(), 1u);
}

TEST_F(StoreTest, a_freed_slab_is_reused_only_after_a_flush) {
    format_and_open();
    const uint64_t slabs = slab_count();
    for (uint64_t i = 0; i < slabs; ++i) ASSERT_TRUE(write(1, i * pages_per_slab, 1));
    EXPECT_EQ(store_->space().free_bytes, 0u);
    EXPECT_FALSE(store_->has_room_for(PageId::of(2, 0)));
    EXPECT_TRUE(store_->has_room_for(PageId::of(1, 7)));
    EXPECT_EQ(write(2, 0, 2).error().code, Errc::no_space);
    EXPECT_EQ(store_->reserve(PageId::of(2, 0)).error().code, Errc::no_space);
    ASSERT_TRUE(flush());
    ASSERT_TRUE(zero(1, 0, pages_per_slab));
    EXPECT_EQ(read(1, 0), 0);
    EXPECT_EQ(store_->reserve(PageId::of(2, 0)).error().code, Errc::no_space);
    ASSERT_TRUE(flush());
    EXPECT_EQ(store_->space().free_bytes, slab_size);
    ASSERT_TRUE(store_->reserve(PageId::of(2, 0)));
    ASSERT_TRUE(write(2, 0, 2));
    EXPECT_EQ(read(2, 0), 2);
    EXPECT_EQ(read(2, 1), 0) << "the bytes of the old volume";
}

TEST_F(StoreTest, a_write_flushes_to_get_freed_slabs_back) {
    format_and_open();
    for (uint64_t i = 0; i < slab_count(); ++i) ASSERT_TRUE(write(1, i * pages_per_slab, 1));
    ASSERT_TRUE(zero(1, 0, pages_per_slab));
    ASSERT_TRUE(write(2, 0, 2));
    EXPECT_EQ(loop_->run_until_done(store_->make_room(*loop_, PageId::of(3, 0))).error().code, Errc::no_space);
    ASSERT_TRUE(zero(1, 0, slab_count() * pages_per_slab));
    ASSERT_TRUE(loop_->run_until_done(store_->make_room(*loop_, PageId::of(3, 0))));
}

TEST_F(StoreTest, a_write_without_room_changes_nothing) {
    format_and_open();
    const uint64_t slabs = slab_count();
    EXPECT_EQ(slabs * pages_per_slab < page_count * 2, true);
    std::vector<PageWrite> writes;
    for (uint64_t i = 0; i <= slabs; ++i)
        writes.push_back({.page = PageId::of(1, i * pages_per_slab), .bytes = buffer(i)});
    EXPECT_EQ(loop_->run_until_done(store_->write(*loop_, writes)).error().code, Errc::no_space);
    ASSERT_TRUE(flush());
    EXPECT_EQ(store_->space().allocated_bytes, 0u);
}

TEST_F(StoreTest, reserved_space_is_nobody_elses) {
    format_and_open();
    for (uint64_t i = 0; i < slab_count(); ++i) ASSERT_TRUE(store_->reserve(PageId::of(1, i * pages_per_slab)));
    EXPECT_EQ(write(2, 0, 2).error().code, Errc::no_space);
    ASSERT_TRUE(write(1, 0, 1));
    store_->unreserve(PageId::of(1, pages_per_slab));
    ASSERT_TRUE(write(2, 0, 2));  // after a flush of its own
    // Zeroing one page leaves the slab to another that is reserved in it.
    ASSERT_TRUE(store_->reserve(PageId::of(1, 9)));
    ASSERT_TRUE(zero(1, 0, 9));
    ASSERT_TRUE(flush());
    EXPECT_EQ(write(3, 0, 3).error().code, Errc::no_space);
    ASSERT_TRUE(write(1, 9, 9));
}

TEST_F(StoreTest, zeroed_pages_stay_zero_after_flush_and_reopen) {
    format_and_open();
    ASSERT_TRUE(write(1, 0, 7, 512));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(zero(1, 100, 300));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(opens());
    EXPECT_EQ(read(1, 99), 7);
    EXPECT_EQ(read(1, 100), 0);
    EXPECT_EQ(read(1, 399), 0);
    EXPECT_EQ(read(1, 400), 7);
}

TEST_F(StoreTest, zero_that_keeps_space_keeps_it_over_a_reopen) {
    format_and_open();
    ASSERT_TRUE(write(1, 0, 7));
    ASSERT_TRUE(zero(1, 0, pages_per_slab, true));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(opens());
    EXPECT_EQ(read(1, 0), 0);
    EXPECT_EQ(store_->space().allocated_bytes, slab_size);
    ASSERT_TRUE(zero(1, 0, pages_per_slab));
    ASSERT_TRUE(flush());
    EXPECT_EQ(store_->space().allocated_bytes, 0u);
}

TEST_F(StoreTest, a_page_that_is_zeroed_alone_stays_reserved_if_it_is) {
    format_and_open();
    const PageId page = PageId::of(1, 0);
    for (const bool is_alone : {false, true}) {
        ASSERT_TRUE(write(1, 0, 7));
        if (!is_alone) {
            ASSERT_TRUE(write(1, 1, 7));
        }
        ASSERT_TRUE(loop_->run_until_done(store_->zero_page(*loop_, page)));
        EXPECT_EQ(read(1, 0), 0);
        if (!is_alone) {
            ASSERT_TRUE(zero(1, 1, 1));
        }
        ASSERT_TRUE(flush());
        EXPECT_EQ(store_->space().allocated_bytes, 0u) << "it was not";
        ASSERT_TRUE(write(1, 0, 7));
        ASSERT_TRUE(zero(1, 0, 1));
        ASSERT_TRUE(store_->reserve(page));
        ASSERT_TRUE(loop_->run_until_done(store_->zero_page(*loop_, page)));
        ASSERT_TRUE(flush());
        EXPECT_EQ(store_->space().allocated_bytes, slab_size);
        store_->unreserve(page);
        ASSERT_TRUE(flush());
        EXPECT_EQ(store_->space().allocated_bytes, 0u);
    }
    // Reserved after it was stored, as by who asks for it while it is zeroed.
    ASSERT_TRUE(write(1, 1, 7));
    ASSERT_TRUE(store_->reserve(page));
    ASSERT_TRUE(loop_->run_until_done(store_->zero_page(*loop_, PageId::of(1, 1))));
    ASSERT_TRUE(flush());
    EXPECT_EQ(store_->space().allocated_bytes, slab_size);
    ASSERT_TRUE(opens());
    EXPECT_EQ(store_->space().allocated_bytes, 0u) << "reservations end with the process";
}

TEST_F(StoreTest, space_that_was_kept_by_parts_is_kept_until_the_last_of_them_is_given_back) {
    format_and_open();
    ASSERT_TRUE(write(1, 100, 7));
    ASSERT_TRUE(zero(1, 0, 4, true));
    ASSERT_TRUE(zero(1, 8, 4, true));
    ASSERT_TRUE(zero(1, 100, 1));
    ASSERT_TRUE(zero(1, 0, 4));
    ASSERT_TRUE(flush());
    EXPECT_EQ(store_->space().allocated_bytes, slab_size);
    ASSERT_TRUE(opens());
    EXPECT_EQ(store_->space().allocated_bytes, slab_size);
    ASSERT_TRUE(zero(1, 0, pages_per_slab));
    ASSERT_TRUE(flush());
    EXPECT_EQ(store_->space().allocated_bytes, 0u);
    ASSERT_TRUE(opens());
    EXPECT_EQ(store_->space().allocated_bytes, 0u);
}

TEST_F(StoreTest, a_freed_slab_that_was_reserved_meanwhile_for_nothing_is_free) {
    format_and_open();
    ASSERT_TRUE(write(1, 0, 1));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(zero(1, 0, 1));
    ASSERT_TRUE(store_->reserve(PageId::of(1, 0)));
    ASSERT_TRUE(flush());
    store_->unreserve(PageId::of(1, 0));
    EXPECT_EQ(store_->space().allocated_bytes, 0u);
}

TEST_F(StoreTest, extents_tell_data_from_holes) {
    format_and_open();
    ASSERT_TRUE(write(1, 250, 1, 10));
    ASSERT_TRUE(write(1, 300, 1));
    const std::vector<PageRun> expected = {{.first = 240, .count = 10, .present = false},
                                           {.first = 250, .count = 10, .present = true},
                                           {.first = 260, .count = 40, .present = false},
                                           {.first = 300, .count = 1, .present = true},
                                           {.first = 301, .count = 19, .present = false}};
    EXPECT_EQ(store_->extents(1, 240, 80), expected);
    EXPECT_EQ(store_->extents(1, 240, 80, 2), (std::vector<PageRun>{expected[0], expected[1]}));
    EXPECT_TRUE(store_->extents(1, 5, 0).empty());
    // It ends with the slab in which it has looked at so many pages; one that is not in use counts as a page.
    const uint64_t start = 250 / pages_per_slab * pages_per_slab;
    const auto end_of = [&](uint64_t first, uint64_t count, uint64_t pages_max) {
        const std::vector<PageRun> front = store_->extents(1, first, count, 100, pages_max);
        EXPECT_FALSE(front.empty());
        return front.empty() ? 0 : front.back().first + front.back().count;
    };
    for (const uint64_t count : {8 * pages_per_slab, page_number_mask + 1 - start}) {
        EXPECT_EQ(end_of(start, count, 1), start + pages_per_slab);
        EXPECT_EQ(end_of(start, count, pages_per_slab), start + pages_per_slab);
        EXPECT_EQ(end_of(start, count, pages_per_slab + 1), start + 2 * pages_per_slab);
    }
    EXPECT_EQ(end_of(80 * pages_per_slab, 3 * pages_per_slab, 2), 82 * pages_per_slab);
    // A volume far larger than the store.
    std::vector<PageRun> whole = store_->extents(1, 0, page_number_mask + 1);
    ASSERT_EQ(whole.size(), 5u);
    EXPECT_EQ(whole[0].count, 250u);
    EXPECT_EQ(whole[3], expected[3]);
    EXPECT_EQ(whole[4].first + whole[4].count, page_number_mask + 1);
}

TEST_F(StoreTest, a_dropped_volume_leaves_the_others) {
    format_and_open();
    ASSERT_TRUE(write(1, 0, 1, 300));
    ASSERT_TRUE(write(2, 0, 2));
    ASSERT_TRUE(flush());
    ASSERT_TRUE(loop_->run_until_done(store_->drop_volume(*loop_, 1)));
    ASSERT_TRUE(flush());
    EXPECT_EQ(store_->volumes(), std::vector<VolumeId>{2});
    ASSERT_TRUE(opens());
    EXPECT_EQ(read(1, 0), 0);
    EXPECT_EQ(read(2, 0), 2);
}

constexpr int writes_per_shard = 40;

// Each write is flushed before the next; then its loop may end.
Task<> write_and_flush(Loop& loop, Store& store, int shard, std::byte* buffer) {
    for (int i = 0; i < writes_per_shard; ++i) {
        std::memset(buffer, shard * 50 + i, page_size);
        const PageWrite write = {.page = PageId::of(static_cast<VolumeId>(shard + 1), static_cast<uint64_t>(i)),
                                 .bytes = buffer};
        const Result<> written = co_await store.write(loop, std::span(&write, 1));
        EXPECT_TRUE(written);
        const Result<> flushed = co_await store.flush(loop);
        EXPECT_TRUE(flushed);
    }
    loop.stop();
}

TEST_F(StoreTest, flushes_from_many_shards_share_rounds) {
    format_and_open(uint64_t{32} << 20);
    constexpr int shard_count = 4;
    // Made before and gone after all shards: a loop outlives whoever may post to it.
    std::vector<std::unique_ptr<Loop>> loops;
    std::vector<std::thread> shards;
    for (int shard = 0; shard < shard_count; ++shard) loops.push_back(std::move(*Loop::create()));
    for (int shard = 0; shard < shard_count; ++shard)
        shards.emplace_back([this, shard, &loop = *loops[static_cast<size_t>(shard)]] {
            loop.spawn(write_and_flush(loop, *store_, shard, buffer(static_cast<size_t>(shard))));
            loop.run();
        });
    for (std::thread& shard : shards) shard.join();
    loops.clear();  // a ring keeps the file it last used, and with it the lock
    ASSERT_TRUE(opens());
    for (int shard = 0; shard < shard_count; ++shard)
        for (int i = 0; i < writes_per_shard; ++i)
            EXPECT_EQ(read(static_cast<VolumeId>(shard + 1), static_cast<uint64_t>(i)), shard * 50 + i);
}

TEST_F(StoreTest, a_failed_flush_stays_failed) {
    format_and_open();
    ASSERT_TRUE(write(1, 0, 1));
    // The kernel then refuses the table's blocks as it would on a failing device.
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit tiny{.rlim_cur = page_size, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tiny), 0);
    const Result<> failed = flush();
    const Result<> failed_write = write(1, 1, 1);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_FALSE(failed);
    EXPECT_FALSE(failed_write);
    EXPECT_EQ(flush().error().code, Errc::io);
    ASSERT_TRUE(store_->failure());
    EXPECT_EQ(read(1, 0), 1);
    ASSERT_TRUE(opens());
    EXPECT_FALSE(store_->failure());
    ASSERT_TRUE(flush());
}

TEST_F(StoreTest, refuses_what_is_not_a_store) {
    EXPECT_EQ(open_error(), Errc::not_found);
    {
        const UniqueFd made(::open(path_.c_str(), O_CREAT | O_WRONLY, 0600));
    }
    EXPECT_EQ(open_error(), Errc::invalid) << "empty";
    ASSERT_EQ(::truncate(path_.c_str(), small_store), 0);
    EXPECT_EQ(open_error(), Errc::not_found) << "zeros";
    path_ = directory_.path();
    EXPECT_EQ(open_error(), Errc::invalid) << "a directory";
    path_ = directory_ / "fifo";
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    EXPECT_EQ(open_error(), Errc::invalid);
    path_ = "/dev/null";
    EXPECT_EQ(open_error(), Errc::invalid);
}

TEST_F(StoreTest, refuses_a_truncated_store_a_foreign_one_and_one_in_use) {
    format_and_open();
    Result<std::unique_ptr<Store>> second = loop_->run_until_done(Store::open(*loop_, path_, store_identity));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Errc::busy);
    EXPECT_EQ(Store::format(path_, small_store, store_identity, true).error().code, Errc::busy);
    EXPECT_EQ(open_error({.cluster = {0xc2}, .host = 2}), Errc::refused);
    EXPECT_EQ(open_error({.cluster = {0xc1}, .host = 3}), Errc::refused);
    ASSERT_EQ(::truncate(path_.c_str(), small_store - (2 << 20)), 0);
    EXPECT_EQ(open_error(), Errc::corrupt);
}

TEST_F(StoreTest, format_spares_what_is_there) {
    EXPECT_EQ(Store::format(path_, 1 << 20, store_identity, false).error().code, Errc::invalid);
    EXPECT_FALSE(std::filesystem::exists(path_)) << "a failed format leaves no file";
    format_and_open();
    ASSERT_TRUE(write(1, 0, 1));
    ASSERT_TRUE(flush());
    close();
    EXPECT_EQ(Store::format(path_, small_store, store_identity, false).error().code, Errc::exists);
    ASSERT_TRUE(opens());
    EXPECT_EQ(read(1, 0), 1);
    close();
    ASSERT_TRUE(Store::format(path_, small_store, store_identity, true));
    ASSERT_TRUE(opens());
    EXPECT_EQ(read(1, 0), 0);
    EXPECT_EQ(Store::format(directory_ / "none/store", small_store, store_identity, false).error().code,
              Errc::not_found);
}

TEST_F(StoreTest, one_bad_superblock_is_repaired_and_two_are_refused) {
    format_and_open();
    store_.reset();
    const auto spoil = [this](uint64_t offset) {
        const UniqueFd fd(::open(path_.c_str(), O_WRONLY));
        const char garbage = 'x';
        ASSERT_EQ(::pwrite(fd.get(), &garbage, 1, static_cast<off_t>(offset + 20)), 1);
    };
    spoil(StoreLayout::superblock_offsets[0]);
    ASSERT_TRUE(opens());
    EXPECT_EQ(store_->home_epoch(), 2u);
    store_.reset();
    spoil(StoreLayout::superblock_offsets[1]);
    ASSERT_TRUE(opens()) << "the first copy was repaired";
    EXPECT_EQ(store_->home_epoch(), 3u);
    store_.reset();
    spoil(StoreLayout::superblock_offsets[0]);
    spoil(StoreLayout::superblock_offsets[1]);
    EXPECT_EQ(open_error(), Errc::corrupt);
}

// The store against a plain map: what it reads now, and what it reads after the process is gone.
TEST_F(StoreTest, agrees_with_a_model) {
    for (const unsigned seed : {1u, 2u}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        std::filesystem::remove(path_);
        format_and_open(uint64_t{12} << 20);
        std::mt19937 random(seed);
        using Key = std::pair<VolumeId, uint64_t>;
        std::map<Key, int> now;
        // What a page may read as after a reopen: its durable value, or one it was given since.
        std::map<Key, std::vector<int>> possible;
        const auto value_of = [](const std::map<Key, int>& model, const Key& key) {
            const auto found = model.find(key);
            return found == model.end() ? 0 : found->second;
        };
        const auto change = [&](const Key& key, int value) {
            auto& values = possible.try_emplace(key, std::vector{0}).first->second;
            values.push_back(value);
            now[key] = value;
        };
        const auto random_key = [&] { return Key(random() % 3, random() % 2500); };
        for (int step = 0; step < 800; ++step) {
            const Key key = random_key();
            const unsigned dice = random() % 100;
            if (dice < 50) {
                const size_t count = 1 + random() % 40;
                const int value = 1 + static_cast<int>(random() % 255);
                const Result<> written = write(key.first, key.second, static_cast<uint8_t>(value), count);
                if (!written) {
                    ASSERT_EQ(written.error().code, Errc::no_space);
                    ASSERT_TRUE(zero(key.first, 0, 3000));
                    for (const auto& [other, old_value] : std::map(now))
                        if (other.first == key.first) change(other, 0);
                    continue;
                }
                for (uint64_t i = 0; i < count; ++i) change({key.first, key.second + i}, value);
            } else if (dice < 70) {
                const uint64_t count = 1 + random() % 600;
                ASSERT_TRUE(zero(key.first, key.second, count));
                for (uint64_t i = 0; i < count; ++i) change({key.first, key.second + i}, 0);
            } else if (dice < 90) {
                ASSERT_EQ(read(key.first, key.second), value_of(now, key)) << key.first << ":" << key.second;
            } else if (dice < 97) {
                ASSERT_TRUE(flush());
                for (auto& [page, values] : possible) values = {value_of(now, page)};
            } else {
                ASSERT_TRUE(opens());
                for (auto& [page, values] : possible) {
                    const int value = read(page.first, page.second);
                    ASSERT_TRUE(std::ranges::find(values, value) != values.end())
                        << page.first << ":" << page.second << " reads " << value;
                    now[page] = value;
                    values = {value};
                }
                // What is read now is what a second restart finds, once it was flushed.
                ASSERT_TRUE(flush());
            }
        }
        drop();
    }
}

}  // namespace
}  // namespace tarn
