// When a piece loses its mark: never while what is in the store is not all there is of it. The test plays the other
// host.
#include "tests/support/interleave.hpp"
#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

class PieceMarkerTest : public HomeOnDevice {
  protected:
    void sweep(milliseconds rest = milliseconds(0)) {
        for (int i = 0; i < 2; ++i) loop_->run_until_done(sweep_once(rest));
    }
    Task<> sweep_once(milliseconds rest) { co_await cache_->home_store().marker().sweep(rest); }
    Task<> pause(milliseconds time) { co_await loop_->sleep(time); }
    Result<> flush() { return loop_->run_until_done(volume_->flush_range(page_ * page_size, page_size, false)); }
    FrameId frame() {
        const FrameId id = cache_->pages().try_pin(page(), view_);
        EXPECT_NE(id, no_frame);
        if (id != no_frame) cache_->pages().unpin(id);
        return id;
    }
    static Task<> store(Cache& cache, VolumeId volume, Result<>& result) {
        result = co_await cache.home_store().writer().store_volume(volume);
    }
};

TEST_F(PieceMarkerTest, a_mark_stays_while_a_write_is_on_its_way_into_the_store) {
    ASSERT_TRUE(write(std::byte{2}));
    cache_->stripes().step(protocol::Event::about(protocol::Event::Kind::write_back, page(), 0));
    Gate storing;
    Result<> stored;
    device_->hold_next_write();
    storing.spawn(store(*cache_, volume_id, stored));
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(device_->holds_a_write());
    // Nobody holds it any more: home's frame is all there is of it.
    std::vector<FrameId> none;
    (void)cache_->eviction().try_evict(frame(), none);
    ASSERT_FALSE(cache_->pages().holds(page()));
    sweep();
    EXPECT_TRUE(store_->is_marked(page()));
    device_->let_write_go();
    loop_->run_until_done(storing.close());
    ASSERT_TRUE(stored);
    sweep();
    EXPECT_FALSE(store_->is_marked(page()));
}

TEST_F(PieceMarkerTest, a_mark_stays_for_a_while_after_each_change) {
    ASSERT_TRUE(write(std::byte{2}));
    ASSERT_TRUE(flush());
    sweep(milliseconds(50));
    ASSERT_TRUE(write(std::byte{3}));
    ASSERT_TRUE(flush());
    loop_->run_until_done(pause(milliseconds(60)));
    loop_->run_until_done(sweep_once(milliseconds(50)));
    EXPECT_TRUE(store_->is_marked(page()));
    loop_->run_until_done(pause(milliseconds(60)));
    loop_->run_until_done(sweep_once(milliseconds(50)));
    EXPECT_FALSE(store_->is_marked(page()));
}

TEST_F(PieceMarkerTest, the_sweeper_removes_each_mark_after_a_while_also_one_that_came_while_there_was_none) {
    MarkSweeper sweeper(cache_->home_store().marker(), *loop_, {.every = 1ms, .every_max = 4ms, .rest = 5ms});
    for (const int value : {2, 3, 4}) {
        ASSERT_TRUE(write(static_cast<std::byte>(value)));
        ASSERT_TRUE(flush());
        ASSERT_TRUE(store_->is_marked(page()));
        while (store_->is_marked(page())) loop_->run_until_done(pause(1ms));
        loop_->run_until_done(pause(5ms));  // a sweep that finds nothing marked
    }
    loop_->run_until_done(sweeper.close());
}

// Somebody writes at one instruction after the other of the look at the piece, until nobody can any more.
TEST_F(PieceMarkerTest, a_piece_that_is_written_to_as_it_is_given_up_is_not_stored) {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer puts signals off";
#endif
    constexpr unsigned step = 16;  // each of them would take seconds
    Interleaving interleaving;
    unsigned count = 0;
    for (bool written = true; written && !HasFailure(); ++count) {
        ASSERT_TRUE(write(std::byte{2}));
        ASSERT_TRUE(flush());
        const Frame* const watched = &cache_->pool().frame(frame());
        const std::array<std::byte, 8> bytes{std::byte{3}};
        PieceRest rest;
        written = false;
        (void)interleaving.run(
            count * step, watched, [&] { rest = cache_->home_store().marker().rest_of(page(), true); },
            [&] { written = cache_->pages().try_write(page(), 0, bytes, view_); });
        EXPECT_NE(written, rest.is_stored && rest.is_free) << count;
    }
    EXPECT_GT(count, 10u);
}

}  // namespace
}  // namespace tarn::home_on_device
