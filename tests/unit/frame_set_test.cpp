#include "tiers/dram/frame_set.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/interleave.hpp"

namespace tarn {
namespace {

std::vector<FrameId> members(FrameSet& set) {
    std::vector<FrameId> ids;
    set.for_each([&](FrameId id) { ids.push_back(id); });
    return ids;
}

TEST(FrameSet, walks_over_what_was_added_and_not_removed) {
    FrameSet set(10'000);
    for (const FrameId id : {0u, 63u, 64u, 4095u, 4096u, 9999u}) set.add(id);
    set.add(64);
    set.remove(63);
    EXPECT_EQ(members(set), (std::vector<FrameId>{0, 64, 4095, 4096, 9999}));
    for (const FrameId id : members(set)) set.remove(id);
    EXPECT_TRUE(members(set).empty());
    EXPECT_TRUE(members(set).empty());
    set.add(9999);
    EXPECT_EQ(members(set), std::vector<FrameId>{9999});
    EXPECT_TRUE(set.has(9999));
    EXPECT_FALSE(set.has(0));
}

TEST(FrameSet, who_has_added_a_frame_finds_it_while_another_thread_adds_it_too) {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer puts signals off";
#endif
    FrameSet set(64);
    Interleaving interleaving;
    bool came_there = true;
    unsigned at = 0;
    for (; came_there && at < 1000 && !HasFailure(); ++at) {
        set.remove(7);
        ASSERT_TRUE(members(set).empty());
        size_t found = 1;
        const auto add_and_look = [&] {
            set.add(7);
            found = members(set).size();
        };
        came_there = interleaving.run(at, nullptr, [&] { set.add(7); }, add_and_look);
        EXPECT_EQ(found, 1u) << at;
    }
    EXPECT_GT(at, 5u);
}

// A flush walks: what was written before it must not be missed because others walk, and tidy up, at the same time.
TEST(FrameSet, no_walk_misses_a_frame_while_others_forget_empty_words) {
    FrameSet set(64);
    std::atomic<bool> done = false;
    std::vector<std::jthread> others;
    for (int i = 0; i < 2; ++i)
        others.emplace_back([&] {
            while (!done) (void)members(set);
        });
    size_t missed = 0;
    for (int i = 0; i < 300'000; ++i) {
        set.add(7);
        missed += members(set).size() != 1;
        set.remove(7);
    }
    done = true;
    EXPECT_EQ(missed, 0u);
}

}  // namespace
}  // namespace tarn
