// Whoever waits in the cache is woken: for a page that somebody is inside of, and for a free frame.
#include "coherence/pages/page_access.hpp"
#include "tests/support/interleave.hpp"
#include "tests/unit/home_on_device.hpp"
#include "utils/interrupt.hpp"

namespace tarn::home_on_device {
namespace {

class CacheWaiters : public HomeOnDevice {
  protected:
    void choose() {
        frame_ = cache_->pages().try_pin(page(), view_);
        ASSERT_NE(frame_, no_frame);
        cache_->pages().unpin(frame_);
    }
    void evict() {
        std::vector<FrameId> to_store;
        EXPECT_FALSE(cache_->eviction().try_evict(frame_, to_store) && to_store.empty()) << "somebody is inside";
    }
    // All but so many of the free frames.
    std::vector<FrameId> take_all_but(size_t count) {
        std::vector<FrameId> taken;
        for (FrameId id = 0; (id = cache_->pool().try_take(use_holder, count)) != no_frame;) taken.push_back(id);
        return taken;
    }
    FrameId frame_ = no_frame;
};

struct Waiter final : FrameWaiter {
    using FrameWaiter::FrameWaiter;
    ~Waiter() = default;
    void run() override { ++runs; }
    int runs = 0;
};

TEST_F(CacheWaiters, a_page_that_is_asked_for_leaves_with_the_last_pin) {
    std::optional<std::byte> seen;
    Gate reads;
    reads.spawn(read_into(seen));
    loop_->run_until_done(reads.close());
    ASSERT_TRUE(seen);
    choose();
    const FrameId first = cache_->pages().try_pin(page(), view_);
    const FrameId second = cache_->pages().try_pin(page(), view_);
    const size_t free_before = cache_->pool().free_count();
    evict();
    cache_->pages().unpin(first);
    EXPECT_EQ(cache_->pool().free_count(), free_before) << "one is left";
    cache_->pages().unpin(second);
    EXPECT_GT(cache_->pool().free_count(), free_before);
}

TEST_F(CacheWaiters, who_finds_not_all_pages_pins_none) {
    std::optional<std::byte> seen;
    Gate reads;
    reads.spawn(read_into(seen));
    loop_->run_until_done(reads.close());
    choose();
    std::vector<Pin> pins;
    EXPECT_FALSE(volume_->try_pin(page_ * page_size, 2 * page_size, pins));
    EXPECT_TRUE(pins.empty());
    const size_t free_before = cache_->pool().free_count();
    std::vector<FrameId> to_store;
    (void)cache_->eviction().try_evict(frame_, to_store);
    EXPECT_GT(cache_->pool().free_count(), free_before);
}

// Asks for the page's frame while it has it.
struct AskingUpdate final : PageUpdate {
    explicit AskingUpdate(std::function<void()> of) : ask(std::move(of)) {}
    bool apply(std::byte* bytes) override {
        bytes[0] = std::byte{9};
        size = 1;
        ask();
        return true;
    }
    std::function<void()> ask;
};

TEST_F(CacheWaiters, a_page_that_is_asked_for_leaves_with_its_writer) {
    ASSERT_TRUE(write(std::byte{2}));
    choose();
    AskingUpdate update([&] { evict(); });
    ASSERT_TRUE(cache_->pages().try_update(page(), update, view_));
    EXPECT_FALSE(cache_->pages().holds(page()));
    loop_->run_until_done(turns(*loop_));
    std::optional<std::byte> seen;
    Gate reads;
    reads.spawn(read_into(seen));
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(seen, std::byte{2}) << "and can be had again";
    if (!seen) cache_->abandon();
    loop_->run_until_done(reads.close());
}

TEST_F(CacheWaiters, a_frame_that_came_free_before_one_waits_for_it_is_his) {
    const std::vector<FrameId> taken = take_all_but(cache_->provider().reserve_count());
    ASSERT_EQ(cache_->supply().take(), no_frame);
    cache_->supply().give(taken.back());
    Waiter waiter(*loop_);
    cache_->supply().wait(waiter);
    EXPECT_NE(waiter.frame, no_frame);
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(waiter.runs, 1);
    for (const FrameId id : taken)
        if (id != taken.back() || waiter.frame != no_frame) cache_->supply().give(id);
}

TEST_F(CacheWaiters, who_waits_for_a_frame_gets_one_in_his_turn_also_behind_one_who_gave_up) {
    std::vector<FrameId> taken = take_all_but(cache_->provider().reserve_count());
    Waiter first(*loop_), second(*loop_), third(*loop_);
    cache_->supply().wait(first);
    cache_->supply().wait(second);
    EXPECT_TRUE(cache_->supply().cancel(second));
    EXPECT_FALSE(cache_->supply().cancel(second));
    cache_->supply().wait(third);
    cache_->supply().give(taken.back());
    taken.pop_back();
    EXPECT_NE(first.frame, no_frame);
    EXPECT_EQ(third.frame, no_frame);
    cache_->supply().give(taken.back());
    taken.pop_back();
    EXPECT_NE(third.frame, no_frame);
    EXPECT_EQ(second.frame, no_frame);
    EXPECT_FALSE(cache_->supply().cancel(first)) << "it has got one";
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(first.runs + 10 * second.runs + 100 * third.runs, 101);
    for (const FrameId id : taken) cache_->supply().give(id);
    cache_->supply().give(first.frame);
    cache_->supply().give(third.frame);
}

// A link finds no frame for what comes, and at each instruction of that one comes free.
TEST_F(CacheWaiters, a_link_that_finds_no_frame_is_told_of_the_next) {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer puts signals off";
#endif
    std::vector<FrameId> taken = take_all_but(0);
    Interleaving interleaving(std::chrono::milliseconds(5));  // it holds the lock of the free frames at times
    std::byte* lent = nullptr;
    bool came_there = true;
    unsigned at = 0;
    for (; came_there && at < 20'000 && !HasFailure(); ++at) {
        fabric_.resumed.clear();
        // As many as a link must leave, and one that comes free.
        const size_t reserve = cache_->provider().reserve_count() / 4;
        while (cache_->pool().free_count() < reserve) {
            cache_->pool().release(taken.back(), use_holder);
            taken.pop_back();
        }
        const FrameId comes_free = taken.back();
        taken.pop_back();
        came_there = interleaving.run(
            at, nullptr, [&] { lent = cache_->inbox().lend_page(peer); }, [&] { cache_->supply().give(comes_free); });
        if (!came_there) cache_->supply().give(comes_free);
        EXPECT_TRUE(lent || !fabric_.resumed.empty()) << at;
        if (lent) taken.push_back(cache_->pool().id_of(lent));
        for (FrameId id = 0; (id = cache_->pool().try_take(use_holder, 0)) != no_frame;) taken.push_back(id);
    }
    EXPECT_FALSE(came_there);
    for (const FrameId id : taken) cache_->supply().give(id);
}

// A write of a whole page of the other host, whose client gives up.
class Orphans : public CacheWaiters {
  protected:
    Orphans() : theirs_(page_ + cache_->membership().ranges().pages_per_range()) {
        answered_ = fabric_.sent.size();
        volume_->wait_at_most(std::chrono::hours(1));
        writes_.spawn(write_whole(*volume_, theirs_ * page_size, interrupt_, over_));
        EXPECT_EQ(fabric_.count(MessageKind::get_exclusive_no_read), 1u);
    }
    void arrive() { grant_all(fabric_, *cache_, answered_, tenure_); }
    void expect_written_and_over() {
        loop_->run_until_done(turns(*loop_));
        EXPECT_TRUE(over_);
        EXPECT_FALSE(cache_->uses().any_of(volume_id)) << "the volume could never be deleted";
        std::byte value{};
        EXPECT_TRUE(volume_->try_read(theirs_ * page_size, std::span(&value, 1)));
        EXPECT_EQ(value, std::byte{3});
        loop_->run_until_done(writes_.close());
    }

    class Raised final : public Interrupt {};
    static Task<> write_whole(CachedVolume& volume, uint64_t offset, Interrupt& interrupt, bool& over) {
        co_await CarryInterrupt(interrupt);
        const std::vector<std::byte> bytes(page_size, std::byte{3});
        EXPECT_FALSE(co_await volume.write(offset, bytes));
        over = true;
    }

    const uint64_t theirs_;
    size_t answered_ = 0;
    Tenure tenure_ = protocol::first_tenure_of(1);
    Raised interrupt_;
    Gate writes_;
    bool over_ = false;
};

TEST_F(Orphans, use_the_volume_until_they_have_written) {
    interrupt_.raise();
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(over_);
    EXPECT_TRUE(cache_->uses().any_of(volume_id));
    arrive();
    expect_written_and_over();
}

TEST_F(Orphans, that_end_as_their_request_does_leave_nothing_behind) {
    interrupt_.raise();
    EXPECT_FALSE(over_) << "its timer has not ended";
    arrive();
    expect_written_and_over();
}

}  // namespace
}  // namespace tarn::home_on_device
