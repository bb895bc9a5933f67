// SlabTable and Superblock: no I/O, and media that lie.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string_view>

#include "tiers/nvme/checksum.hpp"
#include "tiers/nvme/slab_table.hpp"
#include "tiers/nvme/superblock.hpp"

namespace tarn {
namespace {

constexpr Uuid store_id = {1, 2, 3};

struct alignas(page_size) Block {
    std::array<std::byte, page_size> bytes{};
};

TEST(Checksum, is_the_published_crc32c) {
    constexpr std::string_view text = "123456789";
    EXPECT_EQ(crc32c(std::as_bytes(std::span(text))), 0xE3069283u);
    EXPECT_EQ(crc32c(std::as_bytes(std::span(text.substr(4))), crc32c(std::as_bytes(std::span(text.substr(0, 4))))),
              0xE3069283u);
}

TEST(StoreLayout, never_passes_the_end_and_wastes_little) {
    for (uint64_t size = 0; size < (uint64_t{600} << 20); size += 1234567) {
        const uint64_t count = StoreLayout::slab_count_for(size);
        if (count == 0) continue;
        EXPECT_LE(StoreLayout::of(count).end, size);
        EXPECT_GT(StoreLayout::of(count + 2).end, size);
    }
    EXPECT_EQ(StoreLayout::slab_count_for(0), 0u);
    EXPECT_EQ(StoreLayout::slab_count_for(3 << 20), 1u);
    EXPECT_EQ(StoreLayout::slab_count_for(UINT64_MAX), slab_count_max);
}

Superblock example_superblock() {
    return {.identity = {.cluster = {7}, .host = 3}, .store = store_id, .slab_count = 10, .generation = 5};
}

TEST(Superblock, round_trips) {
    Block block;
    Superblock superblock = example_superblock();
    superblock.home_epoch = 77;
    superblock.loss_generation = 2;
    encode_superblock(superblock, block.bytes);
    const Result<Superblock> decoded = decode_superblock(block.bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->identity, superblock.identity);
    EXPECT_EQ(decoded->store, store_id);
    EXPECT_EQ(decoded->slab_count, 10u);
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
    superblock.slab_count = 0;
    EXPECT_TRUE(refused(superblock));
    superblock.slab_count = UINT64_MAX;
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
    new_one.store = {9};
    EXPECT_EQ(choose_superblock(old_one, new_one).error().code, Errc::corrupt);
}

// A table with its media: two places of as many blocks as it needs.
class Media {
  public:
    explicit Media(uint64_t slab_count)
        : slab_count_(slab_count), table(std::make_unique<SlabTable>(store_id, slab_count)) {
        for (uint32_t place = 0; place < 2; ++place) {
            places[place].resize(StoreLayout::of(slab_count).table_block_count);
            for (size_t i = 0; i < places[place].size(); ++i)
                SlabTable::encode_empty_block(store_id, i, place, places[place][i].bytes);
        }
    }
    SlabTable::Changes write() {
        std::vector<Block> blocks(table->changed_block_count());
        SlabTable::Changes changes = table->encode_changes(std::as_writable_bytes(std::span(blocks)));
        for (size_t i = 0; i < changes.blocks.size(); ++i)
            places[changes.blocks[i].place][changes.blocks[i].index] = blocks[i];
        return changes;
    }
    void flush() { table->changes_are_durable(write()); }
    Result<> reload() {
        table = std::make_unique<SlabTable>(store_id, slab_count_);
        for (size_t i = 0; i < places[0].size(); ++i)
            TRY_VOID(table->load_block(i, places[0][i].bytes, places[1][i].bytes));
        return table->finish_load();
    }
    SlabIndex put(VolumeId volume, uint64_t page) const {
        const Result<SlabIndex> slab = table->reserve(PageId::of(volume, page));
        EXPECT_TRUE(slab);
        table->set_present(*slab, page % pages_per_slab);
        return *slab;
    }
    bool has(VolumeId volume, uint64_t page) const {
        const auto slab = table->find(volume, page / pages_per_slab);
        return slab && table->present(*slab, page % pages_per_slab);
    }

  private:
    uint64_t slab_count_;

  public:
    std::unique_ptr<SlabTable> table;
    std::array<std::vector<Block>, 2> places;
};

TEST(SlabTable, finds_what_was_put_and_nothing_else) {
    Media media(200);
    std::map<std::pair<VolumeId, uint64_t>, SlabIndex> model;
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; ++i) {
        const auto volume = static_cast<VolumeId>(random() % 4);
        const uint64_t number = random() % 60;
        const auto known = model.find({volume, number});
        if (random() % 2) {
            const Result<SlabIndex> slab = media.table->reserve(PageId::of(volume, number * pages_per_slab));
            EXPECT_EQ(slab.has_value(), known != model.end() || model.size() < 200);
            if (slab) model[{volume, number}] = *slab;
        } else if (known != model.end()) {
            media.table->clear(known->second, 0, pages_per_slab, false);
            media.flush();
            model.erase(known);
        }
        EXPECT_EQ(media.table->find(volume, number).has_value(), model.contains({volume, number}));
    }
    for (const auto& [key, slab] : model) EXPECT_EQ(media.table->find(key.first, key.second), slab);
    EXPECT_EQ(media.table->free_count(), 200 - model.size());
}

TEST(SlabTable, what_was_encoded_is_found_again) {
    Media media(100);
    for (uint64_t i = 0; i < 100; ++i) media.put(5, i * pages_per_slab + i);
    EXPECT_EQ(media.table->reserve(PageId::of(6, 0)).error().code, Errc::no_space);
    media.flush();
    ASSERT_TRUE(media.reload());
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
    media.flush();
    media.table->clear(slab, 0, 1, false);
    EXPECT_TRUE(media.table->anything_releasing());
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    const SlabTable::Changes changes = media.write();
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    media.table->changes_are_durable(changes);
    EXPECT_TRUE(media.table->reserve(PageId::of(2, 0)));
}

TEST(SlabTable, its_old_volume_may_take_a_releasing_slab_up_again) {
    Media media(1);
    const SlabIndex slab = media.put(1, 0);
    media.flush();
    media.table->clear(slab, 0, pages_per_slab, false);
    const SlabTable::Changes changes = media.write();
    EXPECT_EQ(media.put(1, 3), slab);
    media.table->changes_are_durable(changes);
    EXPECT_TRUE(media.has(1, 3));
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    media.flush();
    ASSERT_TRUE(media.reload());
    EXPECT_TRUE(media.has(1, 3));
    EXPECT_FALSE(media.has(1, 0));
}

TEST(SlabTable, a_pinned_slab_is_given_to_nobody) {
    Media media(1);
    const SlabIndex slab = media.put(1, 0);
    media.table->pin(slab);
    media.table->clear(slab, 0, pages_per_slab, false);
    media.flush();
    EXPECT_FALSE(media.table->reserve(PageId::of(2, 0)));
    media.table->unpin(slab);
    EXPECT_TRUE(media.table->reserve(PageId::of(2, 0)));
}

TEST(SlabTable, kept_space_outlives_the_process_and_reservations_do_not) {
    Media media(3);
    media.table->clear(media.put(1, 0), 0, 4, true);
    ASSERT_TRUE(media.table->reserve(PageId::of(1, pages_per_slab)));
    media.put(2, 0);
    media.flush();
    EXPECT_EQ(media.table->free_count(), 0u);
    ASSERT_TRUE(media.reload());
    EXPECT_EQ(media.table->free_count(), 1u);
    EXPECT_FALSE(media.has(1, 0));
    media.table->clear(*media.table->find(1, 0), 0, pages_per_slab, false);
    media.flush();
    EXPECT_EQ(media.table->free_count(), 2u);
}

// Every subset of the sectors of the block being written may reach the device.
TEST(SlabTable, any_torn_block_leaves_each_entry_old_or_new) {
    constexpr size_t sectors = page_size / sector_size;
    for (unsigned subset = 0; subset < 1u << sectors; ++subset) {
        Media media(64);
        for (uint64_t i = 0; i < 64; ++i) media.put(1, i * pages_per_slab);
        media.flush();
        media.flush();
        for (uint64_t i = 0; i < 64; ++i) media.put(1, i * pages_per_slab + 1);
        const auto before = media.places;
        const SlabTable::Changes changes = media.write();
        ASSERT_EQ(changes.blocks.size(), 1u);
        auto& torn = media.places[changes.blocks[0].place][0].bytes;
        const auto& old_bytes = before[changes.blocks[0].place][0].bytes;
        for (size_t sector = 0; sector < sectors; ++sector)
            if (!(subset >> sector & 1))
                std::copy_n(old_bytes.begin() + sector * sector_size, sector_size, torn.begin() + sector * sector_size);
        ASSERT_TRUE(media.reload()) << subset;
        for (uint64_t i = 0; i < 64; ++i) {
            EXPECT_TRUE(media.has(1, i * pages_per_slab));
            EXPECT_EQ(media.has(1, i * pages_per_slab + 1), (subset >> (i * slab_entry_size / sector_size) & 1) != 0);
        }
    }
}

TEST(SlabTable, garbage_in_the_block_being_written_falls_back_to_the_other_place) {
    Media media(64);
    for (uint64_t i = 0; i < 64; ++i) media.put(1, i * pages_per_slab);
    media.flush();
    media.put(1, 1);
    const SlabTable::Changes changes = media.write();
    std::fill_n(media.places[changes.blocks[0].place][0].bytes.begin(), sector_size, std::byte{0xee});
    ASSERT_TRUE(media.reload());
    EXPECT_TRUE(media.has(1, 0));
    EXPECT_FALSE(media.has(1, 1));
    // The next write goes over the torn place, not over the one that is now alone.
    EXPECT_EQ(media.write().blocks[0].place, changes.blocks[0].place);
}

TEST(SlabTable, rot_of_an_older_flush_is_refused) {
    Media media(128);
    media.put(1, 0);
    const SlabTable::Changes first = media.write();
    media.table->changes_are_durable(first);
    for (uint64_t i = 1; i < 100; ++i) media.put(1, i * pages_per_slab);
    media.flush();
    media.put(1, 99 * pages_per_slab + 1);  // the second block only
    media.flush();
    const uint32_t newest = 1 - first.blocks[0].place;
    media.places[newest][0].bytes[5] ^= std::byte{1};
    const Result<> loaded = media.reload();
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Errc::corrupt);
}

TEST(SlabTable, zeroed_swapped_and_foreign_blocks_are_refused) {
    const auto prepare = [](Media& media) {
        for (uint64_t i = 0; i < 128; ++i) media.put(1, i * pages_per_slab);
        media.flush();
    };
    Media zeroed(128);
    prepare(zeroed);
    zeroed.places[1][0] = {};
    EXPECT_FALSE(zeroed.reload());
    Media swapped(128);
    prepare(swapped);
    std::swap(swapped.places[1][0], swapped.places[1][1]);
    EXPECT_FALSE(swapped.reload());
    Media misplaced(128);
    prepare(misplaced);
    std::swap(misplaced.places[0][0], misplaced.places[1][0]);
    EXPECT_FALSE(misplaced.reload());
    Media foreign(128);
    prepare(foreign);
    SlabTable::encode_empty_block({9}, 0, 1, foreign.places[1][0].bytes);
    EXPECT_FALSE(foreign.reload());
}

TEST(SlabTable, two_slabs_for_one_place_are_refused) {
    Media one(128);
    one.put(1, 0);
    one.flush();
    Media other(128);
    for (uint64_t i = 1; i < 65; ++i) other.put(2, i * pages_per_slab);
    other.put(1, 0);  // in the second block
    other.flush();
    one.places[1][1] = other.places[1][1];
    const Result<> loaded = one.reload();
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Errc::corrupt);
}

}  // namespace
}  // namespace tarn
