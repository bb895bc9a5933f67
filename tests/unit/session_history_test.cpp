// The checker must refuse histories in which a session was not told of a loss.
#include "tests/checker/session_history.hpp"

#include <gtest/gtest.h>

namespace tarn::checker {
namespace {

constexpr SessionNumber writer = 1;
constexpr SessionNumber reader = 2;
constexpr SessionNumber young = 3;
const std::map<SessionNumber, Nanoseconds> opened = {{writer, 1}, {reader, 2}, {young, 100}};

Operation write(SessionNumber session, Value value, Nanoseconds invoked, Nanoseconds ended = never) {
    return {.is_write = true, .value = value, .invoked = invoked, .ended = ended, .session = session};
}
Operation read(SessionNumber session, Value value, Nanoseconds invoked, Nanoseconds ended) {
    return {.is_write = false, .value = value, .invoked = invoked, .ended = ended, .session = session};
}
Flush flush(SessionNumber session, Nanoseconds invoked, Nanoseconds ended) {
    return {.invoked = invoked, .ended = ended, .session = session};
}
bool told(const std::vector<Operation>& operations, const std::vector<Flush>& flushes = {}) {
    return !explain_silence(0, operations, flushes, opened);
}

TEST(SessionHistory, who_was_there_before_a_loss_is_not_shown_what_was_before) {
    const Operation first = write(writer, 1, 10, 20);
    const Operation second = write(writer, 2, 30, 40);
    EXPECT_TRUE(told({first, second, read(young, 1, 120, 130)})) << "it began later";
    EXPECT_TRUE(told({first, second, read(young, 0, 120, 130)}));
    EXPECT_TRUE(told({first, second, read(0, 1, 120, 130)})) << "nothing is known of who read";
    EXPECT_FALSE(told({first, second, read(writer, 1, 120, 130)})) << "it wrote what is gone";
    EXPECT_FALSE(told({first, second, read(reader, 1, 120, 130)})) << "it could have seen it";
    EXPECT_FALSE(told({first, second, read(reader, 0, 120, 130)}));
    EXPECT_TRUE(told({first, second, read(reader, 2, 120, 130)}));
}

TEST(SessionHistory, what_was_written_after_a_loss_is_read_by_all) {
    const std::vector<Operation> history = {write(writer, 1, 10, 20), write(young, 3, 110, 120)};
    for (const SessionNumber session : {writer, reader, young}) {
        auto all = history;
        all.push_back(read(session, 3, 130, 140));
        EXPECT_TRUE(told(all)) << session;
        all.back().value = 0;
        EXPECT_FALSE(told(all)) << session;
    }
}

TEST(SessionHistory, writes_that_overlap_or_have_no_answer_are_not_older) {
    EXPECT_TRUE(told({write(writer, 1, 10, 40), write(reader, 2, 20, 30), read(reader, 1, 50, 60)}));
    EXPECT_TRUE(told({write(writer, 1, 10), write(reader, 2, 20, 30), read(reader, 1, 50, 60)}));
    EXPECT_TRUE(told({write(writer, 1, 10, 20), write(reader, 2, 30), read(reader, 1, 50, 60)})) << "it had no answer";
    EXPECT_TRUE(told({write(writer, 1, 10, 20), read(reader, 0, 5, 15)})) << "it was read meanwhile";
}

TEST(SessionHistory, a_flush_over_a_lost_write_of_its_own_fails) {
    const std::vector<Operation> history = {write(writer, 1, 10, 20), read(young, 0, 120, 130)};
    EXPECT_TRUE(told(history, {}));
    EXPECT_FALSE(told(history, {flush(writer, 150, 160)})) << "after the loss";
    EXPECT_FALSE(told(history, {flush(writer, 110, 115)})) << "before anybody saw it";
    EXPECT_FALSE(told(history, {flush(writer, 30, 40)})) << "before the loss: then it was not to be lost";
    EXPECT_FALSE(told(history, {flush(writer, 300, 310)})) << "ever";
    EXPECT_TRUE(told(history, {flush(writer, 5, 30)})) << "it covers what was answered before it began";
    EXPECT_TRUE(told(history, {flush(reader, 150, 160)})) << "it wrote nothing";
    EXPECT_TRUE(told(history, {flush(young, 150, 160)}));
    const std::vector<Operation> overwritten = {write(writer, 1, 10, 20), read(young, 0, 120, 130),
                                                write(writer, 2, 140, 150), read(young, 2, 160, 170)};
    EXPECT_FALSE(told(overwritten, {flush(writer, 180, 190)})) << "what it wrote since is no excuse";
}

TEST(SessionHistory, zeros_are_as_old_as_the_last_who_wrote_them) {
    EXPECT_TRUE(
        told({write(writer, 0, 10, 20), write(writer, 1, 30, 40), write(writer, 0, 50, 60), read(reader, 0, 70, 80)}));
    EXPECT_FALSE(told({write(writer, 0, 10, 20), write(writer, 1, 30, 40), read(reader, 0, 70, 80)}));
    EXPECT_FALSE(told({write(writer, 1, 10, 20), write(writer, 0, 30, 40), read(reader, 1, 70, 80)}));
}

TEST(SessionHistory, the_losers_are_those_whose_writes_are_gone) {
    const std::vector<Operation> history = {write(writer, 1, 10, 20), write(reader, 2, 30, 40),
                                            read(young, 1, 120, 130)};
    EXPECT_EQ(losers(0, history), (std::set<SessionNumber>{reader}));
}

}  // namespace
}  // namespace tarn::checker
