// SlabTable and Superblock: no I/O, and media that lie.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string_view>

#include "tests/support/store_identity.hpp"
#include "tiers/nvme/device/checksum.hpp"
#include "tiers/nvme/device/superblock.hpp"
#include "tiers/nvme/table/slab_table.hpp"

namespace tarn {
namespace {

struct alignas(page_size) Block {
    std::array<std::byte, page_size> bytes{};
};

TEST(Checksum, is_the_published_crc32c) {
    constexpr std::string_view text = "123456789";
    EXPECT_EQ(crc32c(std::as_bytes(std::span(text))), 0xE3069283u);
    EXPECT_EQ(crc32c(std::as_bytes(std::span(text.substr(4))), crc32c(std::as_bytes(std::span(text.substr(0, 4))))),
              0xE3069283u);
}

TEST(Checksum, of_a_page_knows_its_page_and_tenure) {
    const Block block;
    const std::span<const std::byte, page_size> bytes(block.bytes);
    const uint32_t sum = page_checksum(PageId::of(1, 2), 3, bytes);
    EXPECT_NE(sum, page_checksum(PageId::of(1, 3), 3, bytes));
    EXPECT_NE(sum, page_checksum(PageId::of(2, 2), 3, bytes));
    EXPECT_NE(sum, page_checksum(PageId::of(1, 2), 4, bytes));
}

TEST(StoreLayout, never_passes_the_end_and_wastes_little) {
    for (uint64_t size = 0; size < (uint64_t{600} << 20); size += 1234567) {
        StoreGeometry geometry = StoreGeometry::of_device(size);
        if (geometry.slab_count == 0) continue;
        EXPECT_LE(StoreLayout::of(geometry).end, size);
        geometry.slab_count += 3;
        EXPECT_GT(StoreLayout::of(geometry).end, size);
    }
    EXPECT_EQ(StoreGeometry::of_device(0).slab_count, 0u);
    EXPECT_EQ(StoreGeometry::of_device(4 << 20).slab_count, 2u);
    EXPECT_EQ(StoreGeometry::of_device(UINT64_MAX).slab_count, slab_count_max);
    EXPECT_EQ(StoreGeometry::of_device(uint64_t{1} << 40).journal_size, journal_size_max);
    EXPECT_EQ(StoreGeometry::of_device(uint64_t{16} << 20).journal_size, uint64_t{2} << 20);
}

TEST(StoreLayout, slabs_begin_where_the_device_likes_to_be_written) {
    constexpr uint64_t stripe = uint64_t{4} << 20;
    EXPECT_EQ(data_alignment_for(stripe), stripe);
    EXPECT_EQ(data_alignment_for(0), slab_size);
    EXPECT_EQ(data_alignment_for(uint64_t{128} << 10), slab_size);
    EXPECT_EQ(data_alignment_for(5 * slab_size), slab_size);
    EXPECT_EQ(data_alignment_for(2 * data_alignment_max), slab_size);
    for (uint64_t slabs = 100; slabs < 140; ++slabs) {
        const uint64_t size = slabs * slab_size + 12345;
        const StoreGeometry geometry = StoreGeometry::of_device(size, 0, stripe);
        const StoreLayout layout = StoreLayout::of(geometry);
        EXPECT_EQ(layout.data_offset % stripe, 0u);
        EXPECT_LE(layout.end, size);
    }
}

Superblock example_superblock() {
    return {.identity = {.cluster = {7}, .host = 3},
            .store = store_id,
            .geometry = {.slab_count = 10, .journal_size = journal_size_min},
            .generation = 5};
}

TEST(Superblock, round_trips) {
    Block block;
    Superblock superblock = example_superblock();
    superblock.home_epoch = 77;
    superblock.loss_generation = 2;
    superblock.journal_tail = 5 * page_size;
    superblock.journal_tail_checksum = 0x1234;
    encode_superblock(superblock, block.bytes);
    const Result<Superblock> decoded = decode_superblock(block.bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->identity, superblock.identity);
    EXPECT_EQ(decoded->store, store_id);
    EXPECT_EQ(decoded->geometry, superblock.geometry);
    EXPECT_EQ(decoded->journal_tail, 5 * page_size);
    EXPECT_EQ(decoded->journal_tail_checksum, 0x1234u);
    EXPECT_EQ(decoded->generation, 5u);
    EXPECT_EQ(decoded->home_epoch, 77u);
    EXPECT_EQ(decoded->loss_generation, 2u);
}

TEST(Superblock, every_flipped_bit_is_refused) {
    Block block;
    encode_superblock(example_superblock(), block.bytes);
    for (size_t i = 0; i < page_size; ++i) {
        block.bytes[i] ^= std::byte{0x10};
        EXPECT_FALSE(decode_superblock(block.bytes)) << i;
        block.bytes[i] ^= std::byte{0x10};
    }
}

TEST(Superblock, lies_with_a_good_checksum_are_refused) {
    Block block;
    const auto refused = [&](const Superblock& superblock) {
        encode_superblock(superblock, block.bytes);
        const Result<Superblock> decoded = decode_superblock(block.bytes);
        return !decoded && decoded.error().code == Errc::corrupt;
    };
    Superblock superblock = example_superblock();
    superblock.geometry.slab_count = 0;
    EXPECT_TRUE(refused(superblock));
    superblock.geometry.slab_count = UINT64_MAX;
    EXPECT_TRUE(refused(superblock));
    superblock = example_superblock();
    for (const uint64_t size : {uint64_t{0}, journal_size_min + 1, 2 * journal_size_max, UINT64_MAX}) {
        superblock.geometry.journal_size = size;
        EXPECT_TRUE(refused(superblock)) << size;
    }
    superblock = example_superblock();
    for (const uint64_t alignment : {uint64_t{0}, slab_size / 2, slab_size * 3, uint64_t{1} << 40}) {
        superblock.geometry.data_alignment = alignment;
        EXPECT_TRUE(refused(superblock)) << alignment;
    }
    superblock = example_superblock();
    superblock.journal_tail = 7;
    EXPECT_TRUE(refused(superblock));
    superblock = example_superblock();
    superblock.identity.host = hosts_max;
    EXPECT_TRUE(refused(superblock));
    superblock = example_superblock();
    superblock.generation = UINT64_MAX;
    EXPECT_TRUE(refused(superblock));
    superblock = example_superblock();
    superblock.home_epoch = home_epoch_max + 1;
    EXPECT_TRUE(refused(superblock));
}

TEST(Superblock, the_newer_good_copy_counts) {
    const Superblock old_one = example_superblock();
    Superblock new_one = old_one;
    new_one.generation = 6;
    const Result<Superblock> nothing = fail(Errc::not_found);
    const Result<Superblock> rotten = fail(Errc::corrupt);
    EXPECT_EQ(choose_superblock(old_one, new_one)->generation, 6u);
    EXPECT_EQ(choose_superblock(new_one, old_one)->generation, 6u);
    EXPECT_EQ(choose_superblock(rotten, old_one)->generation, 5u);
    EXPECT_EQ(choose_superblock(nothing, rotten).error().code, Errc::corrupt);
    EXPECT_EQ(choose_superblock(nothing, nothing).error().code, Errc::not_found);
    EXPECT_EQ(choose_superblock(fail(Errc::unsupported), old_one).error().code, Errc::unsupported);
    new_one.store = {9};
    EXPECT_EQ(choose_superblock(old_one, new_one).error().code, Errc::corrupt);
}

// A table with its media: two places of a block per slab.
class Media {
  public:
    explicit Media(uint64_t slab_count) : table(std::make_unique<SlabTable>(store_id, slab_count)) {
        for (auto& place : places) place.resize(slab_count);
        write();
    }
    void write() {
        ++sequence_;
        for (auto& place : places)
            for (SlabIndex slab = 0; slab < place.size(); ++slab)
                table->encode(slab, sequence_, BlockBytes(place[slab].bytes));
    }
    Result<> reload() {
        table = std::make_unique<SlabTable>(store_id, places[0].size());
        complete = true;
        for (SlabIndex slab = 0; slab < places[0].size(); ++slab) {
            TRY(const SlabTable::Loaded loaded,
                table->load(slab, ConstBlockBytes(places[0][slab].bytes), ConstBlockBytes(places[1][slab].bytes)));
            complete &= loaded.complete;
        }
        table->finish_load();
        return {};
    }
    SlabIndex put(VolumeId volume, uint64_t page) const {
        const Result<SlabIndex> slab = table->reserve(PageId::of(volume, page));
        EXPECT_TRUE(slab);
        table->set_in_place(*slab, page % pages_per_slab, entry_of(volume, page));
        return *slab;
    }
    static PageEntry entry_of(VolumeId volume, uint64_t page) {
        return {.tenure = volume * 1000 + page, .checksum = static_cast<uint32_t>(mix64(page))};
    }
    bool has(VolumeId volume, uint64_t page) const {
        const auto slab = table->find(volume, page / pages_per_slab);
        if (!slab || !table->present(*slab, page % pages_per_slab)) return false;
        EXPECT_EQ(table->entry(*slab, page % pages_per_slab), entry_of(volume, page));
        return true;
    }

  private:
    uint64_t sequence_ = 0;

  public:
    std::unique_ptr<SlabTable> table;
    std::array<std::vector<Block>, 2> places;
    bool complete = false;
};

TEST(SlabTable, finds_what_was_put_and_nothing_else) {
    SlabTable table(store_id, 200);
    std::map<std::pair<VolumeId, uint64_t>, SlabIndex> model;
    std::mt19937_64 random(1);
    for (uint64_t i = 1; i < 20000; ++i) {
        const auto volume = static_cast<VolumeId>(random() % 4);
        const uint64_t number = random() % 60;
        const auto known = model.find({volume, number});
        if (random() % 2) {
            const Result<SlabIndex> slab = table.reserve(PageId::of(volume, number * pages_per_slab));
            EXPECT_EQ(slab.has_value(), known != model.end() || model.size() < 200);
            if (slab) model[{volume, number}] = *slab;
        } else if (known != model.end()) {
            table.set_present(known->second, 7);
            table.clear(known->second, 0, pages_per_slab, Cleared::free, i);
            table.records_are_durable(i);
            model.erase(known);
        }
        EXPECT_EQ(table.find(volume, number).has_value(), model.contains({volume, number}));
    }
    for (const auto& [key, slab] : model) EXPECT_EQ(table.find(key.first, key.second), slab);
    EXPECT_EQ(table.free_count(), 200 - model.size());
}

TEST(SlabTable, what_was_encoded_is_found_again) {
    Media media(100);
    for (uint64_t i = 0; i < 100; ++i) media.put(5, i * pages_per_slab + i);
    EXPECT_EQ(media.table->reserve(PageId::of(6, 0)).error().code, Errc::no_space);
    media.write();
    ASSERT_TRUE(media.reload());
    EXPECT_TRUE(media.complete);
    for (uint64_t i = 0; i < 100; ++i) {
        EXPECT_TRUE(media.has(5, i * pages_per_slab + i));
        EXPECT_FALSE(media.has(5, i * pages_per_slab + i + 1));
    }
    EXPECT_EQ(media.table->free_count(), 0u);
    EXPECT_EQ(media.table->volumes().at(5), 100u);
}

TEST(SlabTable, a_freed_slab_waits_for_its_release_to_be_durable) {
    Media media(1);
    const SlabIndex slab = media.put(1, 0);
    media.table->clear(slab, 0, 1, Cleared::free, 500);
    EXPECT_TRUE(media.table->anything_releasing());
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    media.table->records_are_durable(499);
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    media.table->records_are_durable(500);
    EXPECT_TRUE(media.table->reserve(PageId::of(2, 0)));
}

TEST(SlabTable, what_was_only_reserved_is_free_at_once) {
    SlabTable table(store_id, 1);
    const Result<SlabIndex> slab = table.reserve(PageId::of(1, 0));
    ASSERT_TRUE(slab);
    EXPECT_FALSE(table.reserve(PageId::of(2, 0)));
    table.unreserve(*slab, 0);
    EXPECT_TRUE(table.reserve(PageId::of(2, 0)));
}

TEST(SlabTable, its_old_volume_may_take_a_releasing_slab_up_again) {
    Media media(1);
    const SlabIndex slab = media.put(1, 0);
    media.table->clear(slab, 0, pages_per_slab, Cleared::free, 10);
    EXPECT_EQ(media.put(1, 3), slab);
    media.table->records_are_durable(10);
    EXPECT_TRUE(media.has(1, 3));
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    // A second release counts from its own record.
    media.table->clear(slab, 0, pages_per_slab, Cleared::free, 20);
    media.table->records_are_durable(19);
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    media.table->records_are_durable(20);
    EXPECT_TRUE(media.table->reserve(PageId::of(2, 0)));
}

// Few runs of the simulator show it.
TEST(SlabTable, the_record_of_an_earlier_clear_does_not_free_a_slab_that_was_cleared_again) {
    Media media(1);
    const SlabIndex slab = media.put(1, 0);
    media.table->clear(slab, 0, pages_per_slab, Cleared::free, 10);
    EXPECT_EQ(media.put(1, 3), slab);
    media.table->clear(slab, 0, pages_per_slab, Cleared::free, 20);
    media.table->records_are_durable(10);
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    media.table->records_are_durable(20);
    EXPECT_TRUE(media.table->reserve(PageId::of(2, 0)));
}

TEST(SlabTable, a_pinned_slab_is_given_to_nobody) {
    Media media(1);
    const SlabIndex slab = media.put(1, 0);
    media.table->pin(slab);
    media.table->clear(slab, 0, pages_per_slab, Cleared::free, 10);
    media.table->records_are_durable(10);
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    media.table->unpin(slab);
    EXPECT_TRUE(media.table->reserve(PageId::of(2, 0)));
}

TEST(SlabTable, kept_space_outlives_the_process_and_reservations_do_not) {
    Media media(3);
    media.table->clear(media.put(1, 0), 0, 4, Cleared::kept, 10);
    ASSERT_TRUE(media.table->reserve(PageId::of(1, pages_per_slab)));
    media.put(2, 0);
    media.write();
    EXPECT_EQ(media.table->free_count(), 0u);
    ASSERT_TRUE(media.reload());
    EXPECT_EQ(media.table->free_count(), 1u);
    EXPECT_FALSE(media.has(1, 0));
    const SlabIndex kept = *media.table->find(1, 0);
    EXPECT_TRUE(media.table->clear_matters(kept, 0, pages_per_slab, Cleared::free));
    media.table->clear(kept, 0, pages_per_slab, Cleared::free, 20);
    media.table->records_are_durable(20);
    EXPECT_EQ(media.table->free_count(), 2u);
}

TEST(SlabTable, pages_that_the_journal_has_are_not_in_the_table) {
    Media media(2);
    const SlabIndex slab = media.put(1, 0);
    media.table->set_present(slab, 1);
    const Result<SlabIndex> other = media.table->reserve(PageId::of(2, 0));
    ASSERT_TRUE(other);
    media.table->set_present(*other, 0);
    media.write();
    ASSERT_TRUE(media.reload());
    EXPECT_TRUE(media.has(1, 0));
    EXPECT_FALSE(media.has(1, 1));
    EXPECT_FALSE(media.table->find(2, 0));
}

// Whatever becomes of one place, the other one says it.
TEST(SlabTable, one_bad_place_is_made_good_by_the_other) {
    for (const size_t place : {0u, 1u}) {
        for (size_t byte = 0; byte < page_size; byte += 7) {
            Media media(2);
            media.put(1, 0);
            media.put(1, 300);
            media.write();
            media.places[place][1].bytes[byte] ^= std::byte{4};
            ASSERT_TRUE(media.reload()) << byte;
            EXPECT_FALSE(media.complete);
            EXPECT_TRUE(media.has(1, 0) && media.has(1, 300));
        }
    }
}

TEST(SlabTable, an_older_place_loses) {
    Media media(1);
    media.put(1, 0);
    media.write();
    const Block old_block = media.places[0][0];
    media.put(1, 1);
    media.write();
    media.places[0][0] = old_block;
    ASSERT_TRUE(media.reload());
    EXPECT_TRUE(media.has(1, 1));
    media.places[1][0] = old_block;  // lost twice: nothing can tell
    ASSERT_TRUE(media.reload());
    EXPECT_FALSE(media.has(1, 1));
}

TEST(SlabTable, zeroed_swapped_and_foreign_blocks_are_refused) {
    const auto refused = [](auto spoil) {
        Media media(128);
        for (uint64_t i = 0; i < 128; ++i) media.put(1, i * pages_per_slab);
        media.write();
        for (auto& place : media.places) spoil(place);
        const Result<> loaded = media.reload();
        return !loaded && loaded.error().code == Errc::corrupt;
    };
    EXPECT_TRUE(refused([](auto& place) { place[5] = {}; }));
    EXPECT_TRUE(refused([](auto& place) { std::swap(place[5], place[6]); }));
    EXPECT_TRUE(refused([](auto& place) { SlabTable::encode_free({9}, 5, 1, BlockBytes(place[5].bytes)); }));
}

// A checkpoint that was cut short wrote the slab's new place and not yet its old one.
TEST(SlabTable, of_two_slabs_for_one_place_the_newer_counts) {
    for (const bool newer_first : {false, true}) {
        Media media(2);
        const auto put_at = [&](SlabIndex slab, uint64_t sequence) {
            SlabTable one(store_id, 2);
            const SlabIndex filler = *one.reserve(PageId::of(9, 0));
            const SlabIndex index = slab == filler ? filler : *one.reserve(PageId::of(1, 0));
            if (slab == filler) {
                one.unreserve(filler, 0);
                EXPECT_EQ(*one.reserve(PageId::of(1, 0)), slab);
            }
            one.set_in_place(index, 5, Media::entry_of(1, 5 + slab));
            for (auto& place : media.places) one.encode(index, sequence, BlockBytes(place[slab].bytes));
        };
        put_at(0, newer_first ? 8 : 7);
        put_at(1, newer_first ? 7 : 8);
        ASSERT_TRUE(media.reload());
        EXPECT_EQ(media.table->find(1, 0), newer_first ? 0u : 1u);
        EXPECT_EQ(media.table->free_count(), 1u);
        put_at(0, 8);
        put_at(1, 8);
        EXPECT_EQ(media.reload().error().code, Errc::corrupt) << "at one moment there is one";
    }
}

}  // namespace
}  // namespace tarn
