// Recovery: when a home that has started may serve.
#include "coherence/membership/recovery.hpp"

#include <gtest/gtest.h>

namespace tarn {
namespace {

using Next = Recovery::Next;

constexpr HostSet hosts = set_of_first(3);

class RecoveryTest : public testing::Test {
  protected:
    Next next(bool all_marked = true) { return recovery_.next(recovery_.moment(), all_marked); }
    void all_report() {
        for (const HostId host : {1, 2}) recovery_.on_reported(host);
    }

    Recovery recovery_{0, hosts};
};

TEST_F(RecoveryTest, a_home_that_is_alone_serves_at_once) {
    Recovery alone(0, set_of(0));
    EXPECT_EQ(alone.next(alone.moment(), true), Next::serve);
    EXPECT_FALSE(alone.recovering());
}

TEST_F(RecoveryTest, serves_once_when_all_have_reported) {
    EXPECT_EQ(next(), Next::wait);
    recovery_.on_reported(1);
    EXPECT_EQ(next(), Next::wait);
    recovery_.on_reported(2);
    EXPECT_TRUE(recovery_.recovering());
    EXPECT_EQ(next(), Next::serve);
    EXPECT_EQ(next(), Next::wait) << "said once";
}

TEST_F(RecoveryTest, a_report_over_an_earlier_link_does_not_count) {
    recovery_.on_reported(1);
    recovery_.on_link_up(1);
    recovery_.on_reported(2);
    EXPECT_EQ(next(), Next::wait);
    recovery_.on_reported(1);
    EXPECT_EQ(next(), Next::serve);
}

TEST_F(RecoveryTest, a_dead_host_need_not_report_until_it_is_back) {
    recovery_.on_dead(1);
    recovery_.on_returned(1);
    recovery_.on_reported(2);
    EXPECT_EQ(next(), Next::wait);
    recovery_.on_dead(1);
    EXPECT_EQ(next(), Next::serve);
}

TEST_F(RecoveryTest, what_was_heard_since_the_caller_looked_is_looked_at) {
    all_report();
    const Recovery::Moment before = recovery_.moment();
    recovery_.on_link_up(1);
    recovery_.on_reported(1);
    EXPECT_EQ(recovery_.next(before, true), Next::look_again);
    EXPECT_EQ(next(), Next::serve);
}

TEST_F(RecoveryTest, a_report_that_comes_after_the_caller_looked_is_looked_at) {
    recovery_.on_reported(1);
    const Recovery::Moment before = recovery_.moment();
    recovery_.on_reported(2);
    EXPECT_EQ(recovery_.next(before, true), Next::look_again) << "its pages may lack their marks";
    EXPECT_EQ(next(false), Next::record);
}

TEST_F(RecoveryTest, a_report_that_comes_while_it_records_may_lack_what_was_lost) {
    recovery_.begin_unrecorded_losses();
    all_report();
    EXPECT_EQ(next(), Next::record);
    recovery_.on_link_up(2);
    const Recovery::Moment before = recovery_.moment();
    recovery_.on_reported(2);
    EXPECT_FALSE(recovery_.recorded(before, true));
}

TEST_F(RecoveryTest, pages_that_may_be_written_are_marked_first) {
    all_report();
    EXPECT_EQ(next(false), Next::record);
    EXPECT_EQ(next(false), Next::wait) << "one records";
    EXPECT_TRUE(recovery_.recorded(recovery_.moment(), false));
    EXPECT_EQ(next(false), Next::record);
    EXPECT_TRUE(recovery_.recorded(recovery_.moment(), false));
    EXPECT_EQ(next(true), Next::serve);
}

TEST_F(RecoveryTest, losses_are_recorded_first) {
    const Recovery::Moment lost = recovery_.begin_unrecorded_losses();
    all_report();
    ASSERT_TRUE(recovery_.lacks_losses());
    EXPECT_EQ(next(), Next::record);
    EXPECT_TRUE(recovery_.recorded(recovery_.moment(), true));
    EXPECT_FALSE(recovery_.lacks_losses());
    EXPECT_TRUE(recovery_.has_recorded_losses());
    EXPECT_TRUE(recovery_.end_unrecorded_losses(lost)) << "they were recorded together";
    EXPECT_EQ(next(), Next::serve);
    const Recovery::Moment lost_later = recovery_.begin_unrecorded_losses();
    EXPECT_FALSE(recovery_.end_unrecorded_losses(lost)) << "others are not on record yet";
    EXPECT_TRUE(recovery_.end_unrecorded_losses(lost_later));
}

TEST_F(RecoveryTest, the_loss_of_its_own_memory_is_recorded_first) {
    Recovery lost(0, set_of(0), true);
    EXPECT_EQ(lost.next(lost.moment(), true), Next::record);
    EXPECT_TRUE(lost.recorded(lost.moment(), true));
    EXPECT_EQ(lost.next(lost.moment(), true), Next::serve);
}

TEST_F(RecoveryTest, what_is_heard_while_it_records_is_recorded_too) {
    recovery_.begin_unrecorded_losses();
    all_report();
    const Recovery::Moment before = recovery_.moment();
    EXPECT_EQ(next(), Next::record);
    recovery_.on_link_up(2);
    recovery_.on_reported(2);
    EXPECT_FALSE(recovery_.recorded(before, true));
    EXPECT_EQ(next(), Next::wait) << "it is still recording";
    EXPECT_TRUE(recovery_.recorded(recovery_.moment(), true));
    EXPECT_EQ(next(), Next::serve);
}

TEST_F(RecoveryTest, what_is_heard_after_it_recorded_is_recorded_too) {
    recovery_.begin_unrecorded_losses();
    all_report();
    EXPECT_EQ(next(), Next::record);
    EXPECT_TRUE(recovery_.recorded(recovery_.moment(), true));
    recovery_.on_link_up(2);
    EXPECT_EQ(next(), Next::wait);
    recovery_.on_reported(2);
    EXPECT_TRUE(recovery_.lacks_losses()) << "it may hold less than it did";
    EXPECT_EQ(next(), Next::record);
}

}  // namespace
}  // namespace tarn
