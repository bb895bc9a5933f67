#include "utils/result.hpp"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace tarn
