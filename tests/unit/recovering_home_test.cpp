// A home that has begun anew, of a cluster of three; the test plays the others.
#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

class RecoveringHome : public testing::Test {
  protected:
    RecoveringHome() {
        auto device = std::make_unique<MemoryDevice>(uint64_t{16} << 20);
        const StoreFormat format{.identity = identity, .store = {7}, .size_bytes = device->size_bytes()};
        EXPECT_TRUE(Store::format_device(*device, format));
        store_ = std::move(*loop_->run_until_done(Store::open(*loop_, std::move(device), identity)));
        fabric_.up = set_of(1) | set_of(2);
        cache_ = std::move(
            *Cache::create({.self = 0, .hosts = {0, 1, 2}, .frame_count = 512, .shards = {loop_.get()}}, *store_));
        cache_->set_fabric(fabric_);
    }
    void end() {
        cache_->abandon();
        loop_->stop();
        loop_->run();
    }

    const Process process_{.incarnation = 1, .epoch = 1};
    const std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    std::unique_ptr<Store> store_;
    RecordingFabric fabric_;
    std::unique_ptr<Cache> cache_;
};

TEST_F(RecoveringHome, what_a_host_reported_over_a_link_that_broke_does_not_count) {
    cache_->inbox().on_link_up(1, process_);
    cache_->inbox().on_greeted(1);
    cache_->inbox().on_link_down(1);
    cache_->inbox().on_link_up(1, process_);
    cache_->inbox().on_link_up(2, process_);
    cache_->inbox().on_greeted(2);
    EXPECT_TRUE(cache_->membership().recovering()) << "host 1 has not said over this link what it holds";
    cache_->inbox().on_greeted(1);
    EXPECT_TRUE(loop_->run_until_done(cache_->home_start().ended()));
    end();
}

TEST_F(RecoveringHome, whom_it_met_and_that_losses_are_unrecorded_is_left_to_the_next_process) {
    const ArenaHeader& header = cache_->pool().arena().header();
    cache_->inbox().on_link_up(1, {.incarnation = 3, .epoch = 5});
    EXPECT_EQ(header.met[1].load(), uint64_t{3} << 32 | 5);
    EXPECT_FALSE(header.losses_unrecorded.load());
    cache_->inbox().on_link_up(1, {.incarnation = 7, .epoch = 7});
    EXPECT_TRUE(header.losses_unrecorded.load()) << "it has lost its memory while this home knew no claims";
    end();
}

TEST_F(RecoveringHome, what_a_host_lost_that_is_declared_dead_meanwhile_is_recorded_first) {
    fabric_.up = set_of(1);
    cache_->inbox().on_link_up(1, process_);
    ASSERT_TRUE(loop_->run_until_done(cache_->inbox().forget_host(2, 1)));
    EXPECT_TRUE(cache_->membership().lack().losses);
    const uint64_t generation = store_->loss_generation();
    ArenaHeader& header = cache_->pool().arena().header();
    header.last_in_doubt = 0;  // as if this memory were of a process that was not
    cache_->inbox().on_greeted(1);
    EXPECT_TRUE(loop_->run_until_done(cache_->home_start().ended()));
    EXPECT_GT(store_->loss_generation(), generation);
    EXPECT_EQ(header.last_in_doubt, store_->home_epoch())
        << "the next process must know, should this one be killed now";
    end();
}

// A report that comes at that moment may be the last one that was missing.
TEST_F(RecoveringHome, what_a_dead_host_had_is_unrecorded_from_the_moment_on_from_which_nobody_waits_for_it) {
    const auto lost = loop_->run_until_done(cache_->membership().declare_dead(2, 1));
    ASSERT_TRUE(lost);
    EXPECT_TRUE(*lost);
    EXPECT_TRUE(cache_->membership().lack().losses);
    EXPECT_TRUE(cache_->pool().arena().header().losses_unrecorded);
    const auto again = loop_->run_until_done(cache_->membership().declare_dead(2, 1));
    ASSERT_TRUE(again);
    EXPECT_FALSE(*again) << "it was dead already";
    end();
}

TEST_F(RecoveringHome, what_a_host_may_write_has_room_as_the_process_before_promised) {
    cache_->inbox().on_link_up(1, process_);
    Message hello;
    hello.kind = MessageKind::hello;
    hello.from = 1;
    hello.view_epoch = 1;
    hello.map_epoch = cache_->membership().ranges().epoch();
    hello.incarnation = process_.incarnation;
    hello.page = PageId::of(volume_id, 0);
    while (cache_->home_of(hello.page) != 0) hello.page = PageId::of(hello.page.volume(), hello.page.number() + 1);
    hello.flags = protocol::flag_exclusive;
    hello.tenure = protocol::first_tenure_of(1);
    const uint64_t free_bytes = store_->space().free_bytes;
    ASSERT_TRUE(cache_->inbox().on_message(hello, nullptr));
    EXPECT_LT(store_->space().free_bytes, free_bytes);
    end();
}

TEST_F(RecoveringHome, the_last_report_comes_as_it_stops) {
    cache_->inbox().on_link_up(1, {.incarnation = 3, .epoch = 3});
    cache_->inbox().on_link_up(1, {.incarnation = 4, .epoch = 4});  // there is something to record
    cache_->inbox().on_link_up(2, process_);
    cache_->inbox().on_greeted(1);
    end();
    cache_->inbox().on_greeted(2);  // the loop takes no task any more
    EXPECT_TRUE(cache_->membership().recovering());
}

}  // namespace
}  // namespace tarn::home_on_device
