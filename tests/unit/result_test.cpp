#include "utils/result.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "utils/log.hpp"

namespace tarn {
namespace {

Result<int> half(int value) {
    if (value % 2 != 0) return fail(Errc::invalid, 0, "test.half");
    return value / 2;
}

Result<> quarter(int value, int& out) {
    TRY(const int once, half(value));
    TRY(out, half(once));
    return {};
}

TEST(Result, try_passes_the_value_on) {
    int out = 0;
    ASSERT_TRUE(quarter(12, out));
    EXPECT_EQ(out, 3);
}

TEST(Result, try_returns_the_first_error_with_its_place) {
    int out = 0;
    const Result<> result = quarter(6, out);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::invalid);
    EXPECT_STREQ(result.error().where, "test.half");
}

TEST(Result, who_asked_is_told_the_cause_and_the_log_also_where_and_what_kind_it_is) {
    const auto both = [](Errc code, int sys_errno, StaticText where) {
        return log::describe({code, sys_errno, where}) + " | " + log::explain({code, sys_errno, where});
    };
    EXPECT_EQ(both(Errc::exists, EEXIST, "a volume of that name exists already"),
              "a volume of that name exists already: File exists | a volume of that name exists already");
    EXPECT_EQ(both(Errc::invalid, 0, "that is this host, and it is alive"),
              "that is this host, and it is alive | that is this host, and it is alive");
    EXPECT_EQ(both(Errc::busy, EBUSY, "host: it is connected"),
              "in use at host: it is connected: Device or resource busy | it is connected");
    EXPECT_EQ(both(Errc::io, ENODEV, "nvme.read"), "input/output error at nvme.read: No such device | No such device");
    EXPECT_EQ(
        both(Errc::refused, EACCES, "mount: you may not look at it"),
        "refused at mount: you may not look at it: Permission denied | you may not look at it: Permission denied");
    EXPECT_EQ(both(Errc::io, EIO, "flush: bytes are lost"),
              "input/output error at flush: bytes are lost: Input/output error | bytes are lost");
    EXPECT_EQ(both(Errc::busy, 0, "fabric.answer"), "in use at fabric.answer | in use");
    EXPECT_EQ(both(Errc::busy, 0, ""), "in use | in use");
}

}  // namespace
}  // namespace tarn
