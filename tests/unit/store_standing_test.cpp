// How far a store has come: which memories of it lie behind it, and which tell that it was copied back.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/support/scratch_directory.hpp"
#include "tests/support/store_identity.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {
namespace {

class StoreStandingTest : public testing::Test {
  protected:
    StoreStandingTest() : page_(make_page_buffer(1)) {
        loop_ = std::move(*Loop::create());
        EXPECT_TRUE(Store::format(path("store"), uint64_t{8} << 20, store_identity, false));
    }
    ~StoreStandingTest() override { drop(); }

    std::string path(const char* name) const { return directory_ / name; }
    static Task<bool> pause(Loop& loop) { co_return co_await loop.sleep(std::chrono::milliseconds(1)); }
    void drop() {
        if (store_) loop_->run_until_done(store_->settle(*loop_));
        store_.reset();
        loop_->run_until_done(pause(*loop_));  // the ring gives back its reference to the file, and the lock
    }
    Result<> open(OpenOptions options = {}) {
        drop();
        Result<std::unique_ptr<Store>> store =
            loop_->run_until_done(Store::open(*loop_, path("store"), store_identity, options));
        if (!store) return fail(store.error());
        store_ = std::move(*store);
        return {};
    }
    void copy(const char* from, const char* to) {
        std::filesystem::copy_file(path(from), path(to), std::filesystem::copy_options::overwrite_existing);
    }
    void write_and_flush() {
        std::memset(page_.get(), ++value_, page_size);
        const PageWrite write{.page = PageId::of(1, value_), .tenure = value_, .bytes = page_.get()};
        ASSERT_TRUE(loop_->run_until_done(store_->write(*loop_, std::span(&write, 1))));
        ASSERT_TRUE(loop_->run_until_done(store_->flush(*loop_)));
    }
    bool is_behind(const StoreStanding& remembered) const { return store_->has_come_as_far_as(remembered).has_value(); }

    ScratchDirectory directory_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Store> store_;
    PageBuffer page_;
    uint8_t value_ = 0;
};

TEST_F(StoreStandingTest, what_was_said_at_any_time_lies_behind_every_later_start) {
    std::vector<StoreStanding> said;
    for (int life = 0; life < 200; ++life) {
        ASSERT_TRUE(open());
        said.push_back(store_->standing());
        write_and_flush();
        said.push_back(store_->standing());
        EXPECT_GT(said.back().position, said[said.size() - 2].position);
        if (life % 3 == 0) ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
        for (const StoreStanding& each : said) ASSERT_TRUE(is_behind(each)) << each.epoch << " in life " << life;
    }
    EXPECT_TRUE(is_behind({}));
}

TEST_F(StoreStandingTest, a_store_of_an_earlier_start_is_older) {
    ASSERT_TRUE(open());
    drop();
    copy("store", "backup");
    ASSERT_TRUE(open());
    ASSERT_TRUE(open());
    const StoreStanding later = store_->standing();
    drop();
    copy("backup", "store");
    ASSERT_TRUE(open());
    EXPECT_LT(store_->standing().epoch, later.epoch);
    EXPECT_FALSE(is_behind(later));
}

TEST_F(StoreStandingTest, the_same_epoch_twice_is_told_apart_also_by_later_starts) {
    ASSERT_TRUE(open());
    drop();
    copy("store", "backup");
    ASSERT_TRUE(open());
    const StoreStanding one = store_->standing();
    drop();
    copy("backup", "store");
    for (int life = 0; life < 5; ++life) {
        ASSERT_TRUE(open());
        EXPECT_FALSE(is_behind(one));
        write_and_flush();
    }
    EXPECT_GT(store_->standing().epoch, one.epoch);
}

TEST_F(StoreStandingTest, a_copy_from_the_middle_of_a_life_lacks_what_came_after) {
    ASSERT_TRUE(open());
    write_and_flush();
    const StoreStanding before = store_->standing();
    copy("store", "backup");
    write_and_flush();
    const StoreStanding after = store_->standing();
    drop();
    copy("backup", "store");
    for (int life = 0; life < 3; ++life) {
        ASSERT_TRUE(open());
        EXPECT_TRUE(is_behind(before));
        EXPECT_FALSE(is_behind(after)) << "in life " << life;
        write_and_flush();
        write_and_flush();
    }
}

TEST_F(StoreStandingTest, an_older_one_is_refused_until_it_is_accepted_and_then_all_of_it_is_lost) {
    ASSERT_TRUE(open());
    write_and_flush();
    const StoreStanding remembered{.epoch = 40, .nonce = 4, .position = 100};
    ASSERT_FALSE(is_behind(remembered));
    ASSERT_TRUE(loop_->run_until_done(store_->set_outdone(*loop_, remembered)));
    store_->set_intact_since(1);
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_, true)));
    for (int again = 0; again < 2; ++again) {
        const Result<> refused = open();
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, Errc::refused);
        EXPECT_NE(std::string(refused.error().where).find("--accept-older-store"), std::string::npos);
    }
    ASSERT_TRUE(open({.accept_older = true}));
    EXPECT_GT(store_->home_epoch(), 40u);
    EXPECT_EQ(store_->intact_since(), store_->home_epoch());
    ASSERT_EQ(store_->losses().size(), 1u);
    EXPECT_EQ(store_->losses()[0].first, PageId{0});
    EXPECT_EQ(store_->losses()[0].last, last_page_id);
    EXPECT_EQ(store_->losses()[0].generation, store_->loss_generation());
    EXPECT_TRUE(is_behind(remembered));
    const StoreStanding now = store_->standing();
    const uint64_t generation = store_->loss_generation();
    ASSERT_TRUE(open({.accept_older = true}));  // once is enough
    EXPECT_EQ(store_->loss_generation(), generation);
    EXPECT_TRUE(is_behind(remembered));
    EXPECT_TRUE(is_behind(now));
    EXPECT_FALSE(is_behind({.epoch = now.epoch, .nonce = now.nonce + 1, .position = 0}));
}

TEST_F(StoreStandingTest, what_was_heard_of_others_is_remembered_and_never_less) {
    ASSERT_TRUE(open());
    const StoreStanding newest{.epoch = 7, .nonce = 70, .position = 7000};
    for (const StoreStanding& heard : {StoreStanding{.epoch = 6, .nonce = 60, .position = 9000}, newest,
                                       StoreStanding{.epoch = 7, .nonce = 70, .position = 6000},
                                       StoreStanding{.epoch = 5, .nonce = 50, .position = 9999}})
        ASSERT_TRUE(loop_->run_until_done(store_->set_heard(*loop_, 1, heard)));
    EXPECT_EQ(store_->heard(1), newest);
    ASSERT_TRUE(open());
    EXPECT_EQ(store_->heard(1), newest);
    EXPECT_EQ(store_->heard(0), StoreStanding{});
}

// Of a host whose list of peers was in a wrong order, and has been corrected.
class RenumberedStoreTest : public StoreStandingTest {
  protected:
    static constexpr StoreIdentity before = {.cluster = {0xc1}, .host = 2, .host_name = host_name_of("c")};
    static constexpr StoreIdentity corrected = {.cluster = {0xc1}, .host = 0, .host_name = host_name_of("c")};

    RenumberedStoreTest() { EXPECT_TRUE(Store::format(path("store"), uint64_t{8} << 20, before, true)); }
    Result<> open_as(const StoreIdentity& expected) {
        drop();
        Result<std::unique_ptr<Store>> store = loop_->run_until_done(Store::open(*loop_, path("store"), expected));
        if (!store) return fail(store.error());
        store_ = std::move(*store);
        return {};
    }
    void close(bool complete = true) { ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_, complete))); }
    Errc refusal_of(const StoreIdentity& expected) {
        const Result<> opened = open_as(expected);
        return opened ? Errc::unavailable : opened.error().code;
    }
};

TEST_F(RenumberedStoreTest, one_that_has_nothing_takes_the_number_of_the_corrected_list_and_keeps_it) {
    ASSERT_TRUE(open_as(before));
    close();
    ASSERT_TRUE(open_as(corrected));
    write_and_flush();
    close();
    EXPECT_EQ(refusal_of(before), Errc::refused) << "now it stores a page";
    EXPECT_TRUE(open_as(corrected));
}

TEST_F(RenumberedStoreTest, another_hosts_is_refused_also_when_it_is_empty) {
    EXPECT_EQ(refusal_of({.cluster = {0xc1}, .host = 0, .host_name = host_name_of("b")}), Errc::refused);
    EXPECT_EQ(refusal_of({.cluster = {0xc1}, .host = 0}), Errc::refused);
    EXPECT_EQ(refusal_of({.cluster = {0xc2}, .host = 0, .host_name = host_name_of("c")}), Errc::refused);
    ASSERT_TRUE(Store::format(path("store"), uint64_t{8} << 20, store_identity, true));
    EXPECT_EQ(refusal_of({.cluster = {0xc1}, .host = 0}), Errc::refused) << "no name is not the same name";
}

TEST_F(RenumberedStoreTest, one_whose_host_has_met_another_or_was_killed_or_stores_a_page_is_refused) {
    ASSERT_TRUE(open_as(before));
    drop();  // it was not closed
    EXPECT_EQ(refusal_of(corrected), Errc::refused);
    ASSERT_TRUE(open_as(before));
    ASSERT_TRUE(loop_->run_until_done(store_->set_heard(*loop_, 1, {.epoch = 1, .nonce = 5, .position = 0})));
    close();
    EXPECT_EQ(refusal_of(corrected), Errc::refused);
    EXPECT_TRUE(open_as(before));
    drop();
    ASSERT_TRUE(Store::format(path("store"), uint64_t{8} << 20, before, true));
    ASSERT_TRUE(open_as(before));
    write_and_flush();
    close();
    EXPECT_EQ(refusal_of(corrected), Errc::refused);
    EXPECT_TRUE(open_as(before));
}

}  // namespace
}  // namespace tarn
