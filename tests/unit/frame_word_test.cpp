// FrameWord: what each state of the word lets in.
#include "tiers/dram/frame_word.hpp"

#include <gtest/gtest.h>

namespace tarn {
namespace {

bool write_once(FrameWord& word) {
    if (!word.try_latch_exclusive(word.load())) return false;
    EXPECT_FALSE(word.unlatch_exclusive());
    return true;
}

TEST(FrameWord, a_busy_word_lets_nobody_in_and_tells_the_last_to_leave) {
    FrameWord word;
    word.open(FrameWord::writable);
    ASSERT_TRUE(word.try_pin(word.load()));
    ASSERT_TRUE(word.try_pin(word.load()));
    EXPECT_FALSE(word.make_busy());
    EXPECT_FALSE(word.try_pin(word.load()));
    EXPECT_FALSE(word.try_latch_exclusive(word.load()));
    EXPECT_FALSE(word.unpin());
    EXPECT_TRUE(word.unpin());
    word.open(FrameWord::shared);
    EXPECT_TRUE(word.try_pin(word.load()));
    EXPECT_FALSE(word.try_latch_exclusive(word.load()));
}

TEST(FrameWord, an_urged_word_lets_so_many_writers_in_and_any_reader) {
    FrameWord word;
    word.open(FrameWord::writable);
    word.recall(3);
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(FrameWord::writers_may_go_on(word.load()));
        EXPECT_TRUE(write_once(word));
    }
    EXPECT_FALSE(FrameWord::writers_may_go_on(word.load()));
    EXPECT_FALSE(write_once(word));
    EXPECT_TRUE(FrameWord::readable(word.load()));
    ASSERT_TRUE(word.try_pin(word.load()));
    EXPECT_FALSE(word.unpin());
    EXPECT_TRUE(word.make_busy());
    EXPECT_FALSE(word.try_pin(word.load()));
    // The next one to have the page owes nobody anything.
    word.open(FrameWord::writable);
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(write_once(word));
}

TEST(FrameWord, an_optimistic_reader_notices_writers_and_not_that_somebody_waits) {
    FrameWord word;
    word.open(FrameWord::writable);
    FrameWord::Value seen = word.load();
    word.recall(FrameWord::writes_left_max);
    EXPECT_TRUE(word.unchanged_since(seen));
    EXPECT_TRUE(write_once(word));
    EXPECT_FALSE(word.unchanged_since(seen));
    seen = word.load();
    EXPECT_EQ(FrameWord::version(seen), 2);
    ASSERT_TRUE(word.try_latch_exclusive(seen));
    EXPECT_FALSE(word.unchanged_since(seen)) << "a writer is at work";
    EXPECT_FALSE(word.unlatch_exclusive());
    seen = word.load();
    EXPECT_TRUE(word.make_busy());
    EXPECT_FALSE(word.unchanged_since(seen));
}

}  // namespace
}  // namespace tarn
