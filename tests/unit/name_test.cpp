// valid_volume_name: what may name a volume, on a command line, in a path, in NBD and in a log line.
#include <gtest/gtest.h>

#include <string>

#include "frontends/volumes.hpp"

namespace tarn {
namespace {

using namespace std::string_view_literals;

TEST(VolumeName, ordinary_names_are_valid) {
    for (const std::string_view name :
         std::initializer_list<std::string_view>{"a"sv, "vol1"sv, "db/main"sv, "with space"sv, "...", ".hidden", "a..b",
                                                 "größe", "資料", "🏔", "-x", "%2F", "a:b?c#d"})
        EXPECT_TRUE(valid_volume_name(name)) << name;
    EXPECT_TRUE(valid_volume_name(std::string(255, 'a')));
}

TEST(VolumeName, paths_that_escape_or_collapse_are_not) {
    for (const std::string_view name :
         {""sv, "/"sv, "/a"sv, "a/"sv, "a//b"sv, "."sv, ".."sv, "../a"sv, "a/.."sv, "a/../b"sv, "a/./b"sv, "./a"sv})
        EXPECT_FALSE(valid_volume_name(name)) << name;
}

TEST(VolumeName, too_long_ones_are_not) {
    EXPECT_FALSE(valid_volume_name(std::string(256, 'a')));
    EXPECT_FALSE(valid_volume_name(std::string(4096, 'a')));
    EXPECT_FALSE(valid_volume_name(std::string(253, 'a') + "資"));
}

TEST(VolumeName, control_characters_are_not) {
    EXPECT_FALSE(valid_volume_name("a\0b"sv));
    EXPECT_FALSE(valid_volume_name("\0"sv));
    for (const std::string_view name :
         std::initializer_list<std::string_view>{"a\nb", "\x1b[2J", "a\x7f", "a\tb", "a\xc2\x85",
                                                 "\xc2\x9b"
                                                 "2J"})
        EXPECT_FALSE(valid_volume_name(name)) << name;
    EXPECT_TRUE(valid_volume_name("a\xc2\xa0"));
}

TEST(VolumeName, what_is_not_utf8_is_not) {
    for (const std::string_view name :
         {"\x80", "\xff", "a\xc3", "\xc3(", "\xc0\xaf", "\xc1\x81", "\xe0\x80\xaf", "\xe2\x82", "\xed\xa0\x80",
          "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xf0\x9f\x8f"})
        EXPECT_FALSE(valid_volume_name(name));
}

}  // namespace
}  // namespace tarn
