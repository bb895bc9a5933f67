// The cache of a host alone, on a real store in a temporary file: reads see writes, whatever is evicted in between.
#include "coherence/cache/cache.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "coherence/pages/page_provider.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/journal/scan.hpp"

namespace tarn {
namespace {

constexpr size_t frame_count = 512;
constexpr VolumeId volume_id = 7;

class Cached : public testing::Test {
  protected:
    void SetUp() override {
        path_ = directory_ / "store";
        identity_ = {.cluster = {}, .host = 0};
        ASSERT_TRUE(Store::format(path_, store_bytes_, identity_, false));
        open();
    }
    void TearDown() override { close(); }
    void open() {
        loop_ = std::move(*Loop::create());
        auto store = loop_->run_until_done(Store::open(*loop_, path_, identity_));
        ASSERT_TRUE(store);
        store_ = std::move(*store);
        auto cache =
            Cache::create({.self = 0, .hosts = {0}, .frame_count = frame_count, .shards = {loop_.get()}}, *store_);
        ASSERT_TRUE(cache);
        cache_ = std::move(*cache);
        volumes_ = std::make_unique<VolumeContext>(*cache_);
        volume_ = std::make_unique<CachedVolume>(*volumes_, volume_id);
    }
    // What is not flushed is gone, as after a power cut.
    void close() {
        cache_->abandon();
        loop_->stop();
        loop_->run();  // until all that the cache had begun has ended
        volume_.reset();
        volumes_.reset();
        cache_.reset();
        store_.reset();
        loop_.reset();
    }

    Result<> write(uint64_t offset, std::span<const std::byte> bytes) {
        if (volume_->try_write(offset, bytes)) return {};
        return loop_->run_until_done(volume_->write(offset, bytes));
    }
    Result<> read(uint64_t offset, std::span<std::byte> bytes) {
        if (volume_->try_read(offset, bytes)) return {};
        return loop_->run_until_done(volume_->read(offset, bytes));
    }

    ScratchDirectory directory_;
    uint64_t store_bytes_ = 64 << 20;
    std::string path_;
    StoreIdentity identity_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<VolumeContext> volumes_;
    std::unique_ptr<CachedVolume> volume_;
};

std::vector<std::byte> pattern(size_t size, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

TEST_F(Cached, never_written_bytes_read_as_zeros) {
    std::vector<std::byte> bytes(10000, std::byte{0xee});
    ASSERT_TRUE(read(12345, bytes));
    EXPECT_EQ(bytes, std::vector<std::byte>(10000));
}

TEST_F(Cached, a_second_access_takes_the_hot_path) {
    const auto bytes = pattern(page_size, 1);
    ASSERT_TRUE(write(0, bytes));
    std::vector<std::byte> seen(page_size);
    EXPECT_TRUE(volume_->try_read(0, seen));
    EXPECT_EQ(seen, bytes);
    EXPECT_TRUE(volume_->try_write(100, std::span(bytes).first(700)));
    std::vector<Pin> pins;
    ASSERT_TRUE(volume_->try_pin(0, page_size, pins));
    EXPECT_FALSE(volume_->try_write(0, bytes)) << "a pinned page must not change";
    volume_->unpin(pins);
    EXPECT_TRUE(volume_->try_write(0, bytes));
}

TEST_F(Cached, random_requests_over_a_volume_larger_than_the_pool) {
    constexpr size_t size = frame_count * page_size * 6;
    std::vector<std::byte> model(size);
    std::mt19937_64 random(42);
    for (int i = 0; i < 6000; ++i) {
        const size_t length = 1 + random() % (random() % 8 == 0 ? 200'000 : 9000);
        const uint64_t offset = random() % (size - length);
        switch (random() % 8) {
            case 0: {
                ASSERT_TRUE(loop_->run_until_done(volume_->zero(offset, length, random() % 2 == 0)));
                std::memset(model.data() + offset, 0, length);
                break;
            }
            case 1:
            case 2:
            case 3: {
                const auto bytes = pattern(length, random());
                ASSERT_TRUE(write(offset, bytes));
                std::memcpy(model.data() + offset, bytes.data(), length);
                break;
            }
            default: {
                std::vector<std::byte> seen(length);
                ASSERT_TRUE(read(offset, seen));
                ASSERT_EQ(std::memcmp(seen.data(), model.data() + offset, length), 0) << "request " << i;
            }
        }
        if (i % 1000 == 999) ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    }
}

TEST_F(Cached, what_was_flushed_is_there_after_a_power_cut) {
    const auto first = pattern(300'000, 3);
    ASSERT_TRUE(write(4000, first));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    close();
    open();
    std::vector<std::byte> seen(first.size());
    ASSERT_TRUE(read(4000, seen));
    EXPECT_EQ(seen, first);
}

TEST_F(Cached, some_bytes_of_a_page_take_their_sectors_of_the_journal) {
    const auto page = pattern(page_size, 4);
    ASSERT_TRUE(write(0, page));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    const uint64_t before = store_->journal_status().used_bytes;
    ASSERT_TRUE(write(1000, std::span(page).first(30)));  // within two sectors
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    EXPECT_EQ(store_->journal_status().used_bytes - before, 4096u) << "the least there is: a block";
    close();
    open();
    auto expected = page;
    std::copy_n(page.begin(), 30, expected.begin() + 1000);
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(read(0, seen));
    EXPECT_EQ(seen, expected);
}

TEST_F(Cached, what_an_owner_wrote_since_its_write_back_is_stored_with_its_sectors) {
    auto page = pattern(page_size, 6);
    ASSERT_TRUE(write(0, page));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    const auto change = [&](size_t offset) {
        page[offset] ^= std::byte{1};
        ASSERT_TRUE(write(offset, std::span(page).subspan(offset, 1)));
    };
    change(0);
    cache_->stripes().step(protocol::Event::about(protocol::Event::Kind::write_back, PageId::of(volume_id, 0), 0));
    change(sector_size);  // in the same frame, which is home's by now
    ASSERT_TRUE(loop_->run_until_done(cache_->home_store().writer().store_volume(volume_id)));
    ASSERT_TRUE(loop_->run_until_done(store_->flush(*loop_)));
    close();
    open();
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(read(0, seen)) << "its checksum is that of the whole page";
    EXPECT_EQ(seen, page);
}

TEST_F(Cached, a_range_is_made_durable_without_the_rest) {
    const auto bytes = pattern(10'000, 8);
    const uint64_t far = 100 * page_size;
    ASSERT_TRUE(write(500, bytes));
    ASSERT_TRUE(write(far, bytes));
    const uint64_t rounds_before = store_->journal_status().rounds;
    ASSERT_TRUE(loop_->run_until_done(volume_->flush_range(500, bytes.size(), false)));
    EXPECT_EQ(store_->journal_status().rounds - rounds_before, 1u);
    EXPECT_FALSE(store_->present(PageId::of(volume_id, 100)));
    close();
    open();
    std::vector<std::byte> seen(bytes.size());
    ASSERT_TRUE(read(500, seen));
    EXPECT_EQ(seen, bytes);
    ASSERT_TRUE(read(far, seen));
    EXPECT_EQ(seen, std::vector<std::byte>(bytes.size())) << "nobody asked for it";
}

TEST_F(Cached, pages_of_the_catalog_that_change_together_become_one_group) {
    auto catalog = std::make_unique<CachedVolume>(*volumes_, catalog_volume);
    const auto bytes = pattern(page_size, 2);
    for (const uint64_t page : {5, 0, 9})
        ASSERT_TRUE(loop_->run_until_done(catalog->write(page * page_size + 100, std::span(bytes).first(200))));
    // Others that push everything out that can go.
    std::vector<std::byte> seen(page_size);
    for (uint64_t page = 0; page < 4 * frame_count; ++page) ASSERT_TRUE(write(page * page_size, bytes));
    for (const uint64_t page : {0, 5, 9}) EXPECT_FALSE(store_->present(PageId::of(catalog_volume, page)));
    ASSERT_TRUE(loop_->run_until_done(catalog->flush_group({9, 0, 5})));
    catalog.reset();
    close();

    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    auto file = std::make_unique<StoreFile>(std::move(*StoreFile::open_read_only(path_)));
    std::vector<uint32_t> groups_left;
    const auto visit = [&](const FoundRecord& found) -> Result<> {
        if (found.record.page.volume() == catalog_volume) groups_left.push_back(found.record.group_left);
        return {};
    };
    ASSERT_TRUE(scan_journal(*file, *read_superblock(*file), visit));
    EXPECT_EQ(groups_left, (std::vector<uint32_t>{2, 1, 0}));
    file.reset();
    open();
}

TEST_F(Cached, ranges_and_the_volume_are_flushed_side_by_side) {
    const auto one = [](CachedVolume& volume, uint64_t page, uint8_t value, Result<>& result) -> Task<> {
        const std::vector<std::byte> bytes(300, std::byte{value});
        for (uint64_t i = 0; i < 20 && result; ++i) {
            result = co_await volume.write(page * page_size + i, bytes);
            if (!result) break;
            if (page % 3 == 0)
                result = co_await volume.flush();
            else
                result = co_await volume.flush_range(page * page_size + i, bytes.size(), true);
        }
    };
    std::array<Result<>, 12> results;
    Gate tasks;
    for (size_t i = 0; i < results.size(); ++i)
        tasks.spawn(one(*volume_, i / 2, static_cast<uint8_t>(i), results[i]));  // two on each page
    loop_->run_until_done(tasks.close());
    for (const Result<>& result : results) EXPECT_TRUE(result);
}

TEST_F(Cached, what_changed_before_a_flush_is_in_the_store_after_it) {
    // Each has a sector of one of two pages to itself: what it flushes is on its way for others all the time.
    const auto one = [](CachedVolume& volume, Store& store, uint64_t sector, uint64_t& wrong) -> Task<> {
        const PageBuffer page = make_page_buffer(1);
        const std::span<std::byte, page_size> bytes(page.get(), page_size);
        const uint64_t offset = sector % sectors_per_page * sector_size;
        const uint64_t number = sector / sectors_per_page;
        for (uint8_t value = 1; value < 60; ++value) {
            const std::vector<std::byte> written(sector_size, std::byte{value});
            for (uint64_t i = (sector + value) % 4; i > 0; --i) co_await Yield(*Loop::current());
            if (!co_await volume.write(number * page_size + offset, written) || !co_await volume.flush() ||
                !co_await store.read(*Loop::current(), PageId::of(volume_id, number), bytes) ||
                bytes[offset] != std::byte{value} || bytes[offset + sector_size - 1] != std::byte{value})
                ++wrong;
        }
    };
    uint64_t wrong = 0;
    Gate tasks;
    for (uint64_t sector = 0; sector < 2 * sectors_per_page; ++sector)
        tasks.spawn(one(*volume_, *store_, sector, wrong));
    loop_->run_until_done(tasks.close());
    EXPECT_EQ(wrong, 0u);
}

TEST_F(Cached, a_flush_of_a_range_fails_when_the_cache_stops) {
    ASSERT_TRUE(write(0, pattern(page_size, 8)));
    cache_->abandon();
    const Result<> flushed = loop_->run_until_done(volume_->flush_range(0, page_size, false));
    ASSERT_FALSE(flushed);
    EXPECT_EQ(flushed.error().code, Errc::cancelled);
}

TEST_F(Cached, zeroed_pages_become_holes_once_flushed) {
    const auto bytes = pattern(1 << 20, 5);
    ASSERT_TRUE(write(0, bytes));
    auto extents = loop_->run_until_done(volume_->extents(0, 2 << 20));
    ASSERT_TRUE(extents);
    ASSERT_EQ(extents->size(), 2u);
    EXPECT_FALSE(extents->at(0).hole);
    EXPECT_EQ(extents->at(0).size_bytes, 1u << 20);
    EXPECT_TRUE(extents->at(1).hole);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    ASSERT_TRUE(loop_->run_until_done(volume_->zero(0, 1 << 20, false)));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    extents = loop_->run_until_done(volume_->extents(0, 2 << 20));
    ASSERT_TRUE(extents);
    ASSERT_EQ(extents->size(), 1u);
    EXPECT_TRUE(extents->at(0).hole);
}

TEST_F(Cached, a_flush_of_what_was_appended_and_the_attributes_keeps_the_size) {
    const auto bytes = pattern(5000, 11);
    const auto offset = loop_->run_until_done(volume_->append(bytes));
    ASSERT_TRUE(offset);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush_range(*offset, bytes.size(), true)));
    close();
    open();
    const auto attributes = loop_->run_until_done(volume_->attributes());
    ASSERT_TRUE(attributes);
    EXPECT_EQ(attributes->size_bytes, *offset + bytes.size());
}

TEST_F(Cached, a_hole_before_data_is_one) {
    ASSERT_TRUE(write(5 * page_size, pattern(2 * page_size, 5)));
    const auto extents = loop_->run_until_done(volume_->extents(0, 10 * page_size));
    ASSERT_TRUE(extents);
    ASSERT_EQ(extents->size(), 3u);
    EXPECT_TRUE(extents->at(0).hole);
    EXPECT_EQ(extents->at(0).size_bytes, 5 * page_size);
    EXPECT_FALSE(extents->at(1).hole);
    EXPECT_TRUE(extents->at(2).hole);
}

TEST_F(Cached, a_full_store_refuses_the_write_and_not_the_flush) {
    const auto bytes = pattern(page_size, 9);
    Result<> written;
    uint64_t offset = 0;
    for (; offset < (uint64_t{128} << 20) && written; offset += 1 << 20) written = write(offset, bytes);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, Errc::no_space);
    EXPECT_TRUE(loop_->run_until_done(volume_->flush()));
    EXPECT_TRUE(write(0, bytes)) << "pages that have their space go on";
    ASSERT_TRUE(loop_->run_until_done(volume_->zero(0, 32 << 20, false)));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    EXPECT_TRUE(write(offset, bytes)) << "freed space is used again";
}

TEST_F(Cached, what_is_trimmed_before_it_was_stored_takes_no_space) {
    ASSERT_TRUE(write(0, pattern(page_size, 9)));
    ASSERT_TRUE(loop_->run_until_done(volume_->zero(0, page_size, false)));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    EXPECT_EQ(store_->space().allocated_bytes, 0u);
}

// Who has trimmed a page has no right to its space any more.
TEST_F(Cached, a_page_that_was_trimmed_finds_no_space_once_others_have_it) {
    const auto bytes = pattern(page_size, 9);
    constexpr uint64_t mib = 1 << 20;
    for (uint64_t at = 0; at < 8 * mib; at += page_size) ASSERT_TRUE(write(at, bytes));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    ASSERT_TRUE(loop_->run_until_done(volume_->zero(0, 8 * mib, false)));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    Result<> written;
    for (uint64_t offset = 16 * mib; offset < 128 * mib && written; offset += mib) written = write(offset, bytes);
    ASSERT_FALSE(written);
    written = write(0, bytes);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, Errc::no_space);
    EXPECT_TRUE(loop_->run_until_done(volume_->flush()));
}

Task<> hammer(Loop& loop, CachedVolume& volume, int task, std::vector<std::byte>& mine, Result<>& result) {
    std::mt19937_64 random(static_cast<uint64_t>(task));
    // Each task has its own 512-byte sector of every page: neighbours share pages, never bytes.
    const size_t sector = static_cast<size_t>(task) * 512;
    constexpr size_t pages = frame_count * 3;
    for (int i = 0; i < 3000 && result; ++i) {
        const size_t page = random() % pages;
        const std::span<std::byte> slot = std::span(mine).subspan(page * 512, 512);
        const uint64_t offset = page * page_size + sector;
        if (random() % 2 == 0) {
            for (std::byte& byte : slot) byte = static_cast<std::byte>(random());
            if (!volume.try_write(offset, slot)) result = co_await volume.write(offset, slot);
        } else {
            std::byte seen[512];
            if (!volume.try_read(offset, seen)) result = co_await volume.read(offset, seen);
            if (result && std::memcmp(seen, slot.data(), 512) != 0) result = fail(Errc::corrupt, 0, "test");
        }
        if (i % 64 == 0) co_await Yield(loop);
    }
}

TEST_F(Cached, eight_tasks_share_pages) {
    std::vector<std::vector<std::byte>> models(8, std::vector<std::byte>(frame_count * 3 * 512));
    std::vector<Result<>> results(8);
    loop_->run_until_done([](Loop& loop, CachedVolume& volume, auto& all, auto& ended) -> Task<> {
        Gate gate;
        for (int task = 0; task < 8; ++task)
            gate.spawn(hammer(loop, volume, task, all[static_cast<size_t>(task)], ended[static_cast<size_t>(task)]));
        co_await gate.close();
    }(*loop_, *volume_, models, results));
    for (const Result<>& result : results) EXPECT_TRUE(result) << result.error().where;
}

TEST_F(Cached, attributes_survive_and_growing_writes_move_the_end) {
    const auto bytes = pattern(5000, 11);
    ASSERT_TRUE(loop_->run_until_done(volume_->write_growing(1000, bytes)));
    auto attributes = loop_->run_until_done(volume_->attributes());
    ASSERT_TRUE(attributes);
    EXPECT_EQ(attributes->size_bytes, 6000u);
    EXPECT_GT(attributes->modified_ns, 0);
    const auto offset = loop_->run_until_done(volume_->append(bytes));
    ASSERT_TRUE(offset);
    EXPECT_EQ(*offset, 6000u);
    ASSERT_TRUE(loop_->run_until_done(volume_->change_attributes({.size_bytes = 2000})));
    ASSERT_TRUE(loop_->run_until_done(volume_->change_attributes({.size_bytes = 9000})));
    std::vector<std::byte> seen(7000, std::byte{1});
    ASSERT_TRUE(read(2000, seen));
    EXPECT_EQ(seen, std::vector<std::byte>(7000)) << "what lay past the end does not come back";
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    close();
    open();
    attributes = loop_->run_until_done(volume_->attributes());
    ASSERT_TRUE(attributes);
    EXPECT_EQ(attributes->size_bytes, 9000u);
}

// D1: a write that came while a range was flushed is not covered by that flush.
TEST_F(Cached, what_is_written_while_its_range_is_flushed_stays_noted) {
    const auto bytes = pattern(page_size, 1);
    ASSERT_TRUE(write(0, bytes));
    Result<> flushed = fail(Errc::invalid);
    Gate flushing;
    flushing.spawn([](CachedVolume& volume, Result<>& into) -> Task<> {
        into = co_await volume.flush_range(0, page_size, false);
    }(*volume_, flushed));
    ASSERT_TRUE(volume_->try_write(0, bytes));
    loop_->run_until_done(flushing.close());
    ASSERT_TRUE(flushed);
    ASSERT_TRUE(loop_->run_until_done(store_->record_losses(*loop_, {})));
    EXPECT_FALSE(loop_->run_until_done(volume_->flush_range(0, page_size, false))) << "the second write may be lost";
}

// A hint must not push out all the rest, however much it asks for.
TEST_F(Cached, a_prefetch_brings_in_a_fraction_of_the_pool_at_most) {
    constexpr size_t count = 300;
    constexpr size_t fraction = frame_count / 4;
    ASSERT_TRUE(write(0, pattern(count * page_size, 3)));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    const auto pages_here_after = [&](uint64_t offset_bytes, uint64_t size_bytes) {
        close();
        open();
        EXPECT_TRUE(loop_->run_until_done(volume_->prefetch(offset_bytes, size_bytes)));
        std::vector<size_t> pages;
        std::byte byte;
        for (size_t page = 0; page < count; ++page)
            if (volume_->try_read(page * page_size, std::span(&byte, 1))) pages.push_back(page);
        return pages;
    };
    const auto run_of = [](size_t first, size_t pages) {
        std::vector<size_t> run(pages);
        std::iota(run.begin(), run.end(), first);
        return run;
    };
    EXPECT_EQ(pages_here_after(0, 0), run_of(0, 0));
    EXPECT_EQ(pages_here_after(5 * page_size, 1), run_of(5, 1));
    EXPECT_EQ(pages_here_after(6 * page_size - 1, 2), run_of(5, 2));
    EXPECT_EQ(pages_here_after((count - 1) * page_size, page_size), run_of(count - 1, 1));
    EXPECT_EQ(pages_here_after(20 * page_size, (count - 20) * page_size), run_of(20, fraction));
    EXPECT_EQ(pages_here_after(0, volume_size_max), run_of(0, fraction));
}

class CachedLarge : public Cached {
  protected:
    CachedLarge() { store_bytes_ = uint64_t{1100} << 20; }
};

// A shard does nothing else meanwhile.
TEST_F(CachedLarge, of_much_space_in_use_the_extents_are_told_a_part_at_a_time) {
    constexpr uint64_t looked_at_max = uint64_t{1} << 18;
    constexpr uint64_t count = looked_at_max + 4 * pages_per_slab;
    for (uint64_t page = 0; page < count; page += pages_per_slab)
        ASSERT_TRUE(store_->reserve(PageId::of(volume_id, page)));
    uint64_t at = 0;
    for (const uint64_t end : {looked_at_max * page_size, count * page_size}) {
        const auto extents = loop_->run_until_done(volume_->extents(at, count * page_size - at));
        ASSERT_TRUE(extents);
        ASSERT_EQ(extents->size(), 1u);
        EXPECT_TRUE(extents->front().hole);
        EXPECT_EQ(extents->front().offset_bytes, at);
        EXPECT_EQ(extents->front().offset_bytes + extents->front().size_bytes, end);
        at = end;
    }
}

}  // namespace
}  // namespace tarn
