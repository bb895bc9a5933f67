// The catalog's pages: what is put there is found again, by the next process as well, and damage is refused.
#include "daemon/catalog/catalog_table.hpp"

#include <cstring>

#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

class CatalogTableTest : public HomeOnDevice {
  protected:
    ~CatalogTableTest() override { pages_.reset(); }

    template <class T>
    T run(Task<T> task) {
        return loop_->run_until_done(std::move(task));
    }
    // One volume for each name, from slot 0 on.
    void put_all(const std::vector<std::string>& names) {
        const auto count = static_cast<uint32_t>(names.size());
        ASSERT_TRUE(run(table_->put_header({.next_id = count + 1, .slot_count = count})));
        for (uint32_t slot = 0; slot < count; ++slot)
            ASSERT_TRUE(run(table_->put({.name = names[slot], .id = slot + 1, .slot = slot})));
    }
    // What a wrong device, or a bug, leaves in the catalog's pages.
    void damage(uint64_t offset, uint8_t value) {
        const auto byte = static_cast<std::byte>(value);
        if (!pages_->try_write(offset, std::span(&byte, 1)))
            ASSERT_TRUE(run(pages_->write(offset, std::span(&byte, 1))));
    }
    // The same device, after a power cut.
    void begin_after_power_cut() {
        auto device = std::make_unique<MemoryDevice>(*device_);
        table_.reset();
        pages_.reset();
        end();
        loop_ = std::move(*Loop::create());
        fabric_.up = 0;
        device_ = device.get();
        begin(std::move(device), {});
        begin_table();
    }
    void begin_table() {
        pages_ = std::make_unique<CachedVolume>(*volumes_, catalog_volume, OnLoss::revert);
        table_.emplace(*pages_, 4);
    }

    static constexpr uint64_t record_offset = page_size;  // the first
    static constexpr uint64_t name_size_offset = record_offset + 10;
    static constexpr uint64_t name_offset = record_offset + 16;
    std::unique_ptr<CachedVolume> pages_ = std::make_unique<CachedVolume>(*volumes_, catalog_volume, OnLoss::revert);
    std::optional<CatalogTable> table_{std::in_place, *pages_, 4};
};

TEST_F(CatalogTableTest, is_empty_before_anybody_wrote_it) {
    EXPECT_TRUE(run(table_->list())->empty());
    EXPECT_EQ(run(table_->header())->next_id, 1u);
    EXPECT_EQ(*run(table_->free_slot()), 0u);
    EXPECT_FALSE(run(table_->find("a"))->has_value());
}

TEST_F(CatalogTableTest, keeps_all_of_a_record) {
    put_all({"a"});
    ASSERT_TRUE(
        run(table_->put({.name = "dir/file", .id = 77, .shared = true, .holder = 2, .holder_epoch = 9, .slot = 0})));
    const auto found = *run(table_->find("dir/file"));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, 77u);
    EXPECT_TRUE(found->shared);
    EXPECT_EQ(found->holder, 2);
    EXPECT_EQ(found->holder_epoch, 9u);
    EXPECT_FALSE(found->removed);
    EXPECT_FALSE(run(table_->find("a"))->has_value());
}

TEST_F(CatalogTableTest, who_is_being_removed_has_a_slot_and_no_name) {
    put_all({"a", "b"});
    ASSERT_TRUE(run(table_->put({.name = "a", .id = 1, .slot = 0, .removed = true})));
    EXPECT_EQ(run(table_->list())->size(), 1u);
    EXPECT_EQ(run(table_->list_all())->size(), 2u);
    EXPECT_FALSE(run(table_->find("a"))->has_value());
    EXPECT_EQ(*run(table_->free_slot()), 2u);
}

TEST_F(CatalogTableTest, gives_the_lowest_slot_until_it_is_full) {
    put_all({"a", "b", "c"});
    EXPECT_EQ(*run(table_->free_slot()), 3u);
    put_all({"a", "b", "c", "d"});
    const Result<uint32_t> refused = run(table_->free_slot());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::no_space);
    ASSERT_TRUE(run(table_->clear(1)));
    EXPECT_EQ(*run(table_->free_slot()), 1u);
}

TEST_F(CatalogTableTest, a_commit_survives_a_power_cut) {
    put_all({"a"});
    ASSERT_TRUE(run(table_->commit(0, true)));
    ASSERT_TRUE(run(table_->put({.name = "b", .id = 2, .slot = 1})));  // not committed
    begin_after_power_cut();
    EXPECT_EQ(run(table_->header())->next_id, 2u);
    const auto records = *run(table_->list());
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records.front().name, "a");
}

TEST_F(CatalogTableTest, a_damaged_header_is_refused) {
    put_all({"a"});
    damage(3, 0xff);
    EXPECT_EQ(run(table_->header()).error().code, Errc::corrupt);
    EXPECT_EQ(run(table_->list_all()).error().code, Errc::corrupt);
    EXPECT_EQ(run(table_->free_slot()).error().code, Errc::corrupt);
}

TEST_F(CatalogTableTest, a_header_of_more_slots_than_there_are_is_refused) {
    put_all({"a"});
    ASSERT_TRUE(run(table_->put_header({.next_id = 2, .slot_count = 5})));
    EXPECT_EQ(run(table_->list()).error().code, Errc::corrupt);
}

TEST_F(CatalogTableTest, a_damaged_record_is_refused) {
    put_all({"a"});
    damage(name_size_offset + 1, 0x01);  // 257 bytes
    EXPECT_EQ(run(table_->find("a")).error().code, Errc::corrupt);
    put_all({"a"});
    damage(name_offset, '\n');
    EXPECT_EQ(run(table_->find("a")).error().code, Errc::corrupt);
    put_all({"a"});
    EXPECT_TRUE(run(table_->find("a"))->has_value());
    ASSERT_TRUE(run(table_->put({.name = "a", .id = 0, .slot = 0})));
    EXPECT_EQ(run(table_->find("a")).error().code, Errc::corrupt);
    ASSERT_TRUE(run(table_->put({.name = "a", .id = volume_id_max + 1, .slot = 0})));
    EXPECT_EQ(run(table_->find("a")).error().code, Errc::corrupt);
}

}  // namespace
}  // namespace tarn::home_on_device
