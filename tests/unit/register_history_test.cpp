// The checker must refuse histories that no register has.
#include "tests/checker/register_history.hpp"

#include <gtest/gtest.h>

namespace tarn::checker {
namespace {

Operation write(Value value, Nanoseconds invoked, Nanoseconds ended = never) {
    return {.is_write = true, .value = value, .invoked = invoked, .ended = ended};
}
Operation read(Value value, Nanoseconds invoked, Nanoseconds ended) {
    return {.is_write = false, .value = value, .invoked = invoked, .ended = ended};
}
bool holds(std::vector<Operation> operations, const std::vector<Flush>& flushes = {},
           const std::vector<Loss>& losses = {}) {
    return !explain_violation(0, std::move(operations), flushes, losses);
}

TEST(RegisterHistory, one_after_the_other) {
    EXPECT_TRUE(holds({write(1, 10, 20), read(1, 30, 40), write(2, 50, 60), read(2, 70, 80)}));
    EXPECT_FALSE(holds({write(1, 10, 20), read(0, 30, 40)})) << "a stale read";
    EXPECT_FALSE(holds({write(1, 10, 20), read(3, 30, 40)})) << "a value nobody wrote";
}

TEST(RegisterHistory, operations_that_overlap_may_go_either_way) {
    EXPECT_TRUE(holds({write(1, 10, 40), read(0, 20, 30)}));
    EXPECT_TRUE(holds({write(1, 10, 40), read(1, 20, 30)}));
    EXPECT_TRUE(holds({write(1, 10, 40), write(2, 10, 40), read(1, 50, 60)}));
    EXPECT_TRUE(holds({write(1, 10, 40), write(2, 10, 40), read(2, 50, 60)}));
    EXPECT_FALSE(holds({write(1, 10, 40), write(2, 10, 40), read(2, 50, 60), read(1, 70, 80)}));
    EXPECT_FALSE(holds({write(1, 10, 90), read(1, 20, 30), read(0, 40, 50)})) << "new, then old again";
}

TEST(RegisterHistory, a_write_without_an_answer_takes_effect_late_or_never) {
    EXPECT_TRUE(holds({write(1, 10), read(0, 20, 30), read(1, 40, 50)}));
    EXPECT_TRUE(holds({write(1, 10), read(0, 20, 30)}));
    EXPECT_FALSE(holds({write(1, 10), read(1, 20, 30), write(2, 40, 50), read(1, 60, 70)})) << "twice";
}

TEST(RegisterHistory, a_loss_goes_back_once_and_not_behind_a_flush) {
    const std::vector<Loss> loss = {{.begun = 100, .ended = 110}};
    const std::vector<Operation> writes = {write(1, 10, 20), write(2, 50, 60)};
    const auto then = [&](std::initializer_list<Operation> reads) {
        std::vector<Operation> all = writes;
        all.insert(all.end(), reads);
        return all;
    };
    EXPECT_TRUE(holds(then({read(0, 120, 130)}), {}, loss));
    EXPECT_TRUE(holds(then({read(1, 120, 130)}), {}, loss));
    EXPECT_TRUE(holds(then({read(2, 120, 130)}), {}, loss));
    EXPECT_FALSE(holds(then({read(1, 120, 130), read(0, 140, 150)}), {}, loss)) << "twice";
    EXPECT_FALSE(holds(then({read(1, 70, 80)}), {}, loss)) << "before the crash";
    const std::vector<Flush> of_first = {{.invoked = 30, .ended = 40}};
    EXPECT_TRUE(holds(then({read(1, 120, 130)}), of_first, loss));
    EXPECT_FALSE(holds(then({read(0, 120, 130)}), of_first, loss));
    const std::vector<Flush> of_both = {{.invoked = 70, .ended = 80}};
    EXPECT_TRUE(holds(then({read(2, 120, 130)}), of_both, loss));
    EXPECT_FALSE(holds(then({read(1, 120, 130)}), of_both, loss));
    const std::vector<Flush> of_none = {{.invoked = 5, .ended = 70}};
    EXPECT_TRUE(holds(then({read(0, 120, 130)}), of_none, loss)) << "a flush covers what ended before it began";
    const std::vector<Flush> too_late = {{.invoked = 70, .ended = 105}};
    EXPECT_TRUE(holds(then({read(0, 120, 130)}), too_late, loss));
}

TEST(RegisterHistory, a_loss_goes_not_behind_a_write_that_was_durable_by_itself) {
    const std::vector<Loss> loss = {{.begun = 100, .ended = 110}};
    Operation through = write(2, 50, 60);
    through.is_durable = true;
    EXPECT_TRUE(holds({write(1, 10, 20), through, read(2, 120, 130)}, {}, loss));
    EXPECT_FALSE(holds({write(1, 10, 20), through, read(1, 120, 130)}, {}, loss));
    EXPECT_TRUE(holds({write(1, 10, 20), through, write(3, 70, 80), read(2, 120, 130)}, {}, loss))
        << "a later one may go";
    through.ended = 105;
    EXPECT_TRUE(holds({write(1, 10, 20), through, read(1, 120, 130)}, {}, loss)) << "it was not answered before";
}

TEST(RegisterHistory, zeros_may_be_written_again_and_again) {
    EXPECT_TRUE(holds({write(1, 10, 20), write(0, 30, 40), read(0, 50, 60), write(0, 70, 80), read(0, 90, 95)}));
    EXPECT_FALSE(holds({write(1, 10, 20), write(0, 30, 40), read(1, 50, 60)})) << "a trim without effect";
    EXPECT_FALSE(holds({write(1, 10, 20), write(0, 30, 40), write(2, 50, 60), read(0, 70, 80)}));
}

}  // namespace
}  // namespace tarn::checker
