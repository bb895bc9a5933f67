// Which frames are looked at when frames are to be freed.
#include "tiers/dram/replacement.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tarn {
namespace {

constexpr size_t frame_count = 1000;

class ReplacementTest : public testing::Test {
  protected:
    // Cached frames; a frame with a lower number was used longer ago.
    void SetUp() override {
        pool_ = std::move(*FramePool::create(frame_count));
        replacement_.emplace(*pool_);
        for (size_t i = 0; i < frame_count; ++i) {
            Frame& frame = pool_->frame(pool_->try_take(use_holder, 0));
            frame.cached.store(true);
        }
        for (FrameId id = 0; id < frame_count; ++id) replacement_->set_age(pool_->frame(id), frame_count - id);
    }
    std::set<FrameId> visited(size_t count, unsigned tenths) {
        std::set<FrameId> seen;
        replacement_->pick(count, replacement_->threshold_of(tenths), [&](FrameId id) {
            seen.insert(id);
            return true;
        });
        return seen;
    }

    std::unique_ptr<FramePool> pool_;
    std::optional<Replacement> replacement_;
};

TEST_F(ReplacementTest, the_oldest_go_first) {
    const std::set<FrameId> seen = visited(frame_count, 1);
    ASSERT_FALSE(seen.empty());
    EXPECT_LT(*seen.rbegin(), frame_count / 3);  // a tenth by a sample of 64
}

TEST_F(ReplacementTest, frames_that_wait_for_an_answer_hide_no_others) {
    for (FrameId id = 0; id < frame_count / 2; ++id) pool_->frame(id).cached.store(false);
    const std::set<FrameId> seen = visited(frame_count, 1);
    ASSERT_FALSE(seen.empty());
    EXPECT_GE(*seen.begin(), frame_count / 2);
}

TEST_F(ReplacementTest, all_are_looked_at_when_the_oldest_do_not_do) {
    EXPECT_EQ(visited(frame_count, 10).size(), frame_count);
}

}  // namespace
}  // namespace tarn
