// Programs that verbs run: how they end, and what they said.
#include "daemon/cli/program.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace tarn {
namespace {

using namespace std::chrono_literals;

TEST(ProgramTest, what_it_says_on_either_stream_is_kept) {
    const ProgramEnd end = run_program({"sh", "-c", "echo one; echo two >&2; echo"});
    EXPECT_TRUE(end.succeeded());
    EXPECT_EQ(end.said, "one\ntwo\n\n");
    EXPECT_EQ(end.last_line(), "two");
    EXPECT_EQ(run_program({"true"}).last_line(), "");
}

TEST(ProgramTest, how_it_ended_is_told) {
    EXPECT_EQ(run_program({"sh", "-c", "exit 3"}).exit_status, 3);
    EXPECT_EQ(run_program({"sh", "-c", "kill -TERM $$"}).exit_status, 143);
    const ProgramEnd none = run_program({"/no/such/program"});
    EXPECT_EQ(none.error, ENOENT);
    EXPECT_FALSE(none.succeeded());
    EXPECT_FALSE(run_program({"false"}, 1h).succeeded());
    EXPECT_TRUE(run_program({"true"}, 1h).succeeded());
}

TEST(ProgramTest, one_that_reads_finds_nothing) {
    EXPECT_EQ(run_program({"cat"}).said, "");
}

TEST(ProgramTest, one_that_does_not_end_is_killed_at_the_limit) {
    const ProgramEnd end = run_program({"sh", "-c", "echo begun; exec tail -f /dev/null"}, 300ms);
    EXPECT_TRUE(end.timed_out);
    EXPECT_FALSE(end.succeeded());
    EXPECT_EQ(end.exit_status, 137);
}

}  // namespace
}  // namespace tarn
