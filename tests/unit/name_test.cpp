// valid_volume_name: what may name a volume, on a command line, in a path, in NBD and in a log line.
#include <gtest/gtest.h>

#include <string>

#include "frontends/volumes/volumes.hpp"
#include "utils/printable.hpp"

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

TEST(VolumeName, a_name_that_is_another_ones_directory_collides) {
    EXPECT_TRUE(names_collide("x/y", "x/y/z"));
    EXPECT_TRUE(names_collide("x/y/z", "x/y"));
    EXPECT_TRUE(names_collide("x", "x/y/z"));
    for (const auto& [a, b] : {std::pair{"x/y", "x/y"}, {"x/y", "x/yz"}, {"x/yz", "x/y"}, {"x/y", "y/x/y"}, {"x", "y"}})
        EXPECT_FALSE(names_collide(a, b)) << a << " " << b;
}

TEST(Printable, what_acts_on_a_terminal_is_escaped_and_the_rest_is_not) {
    EXPECT_EQ(printable("vol 1/é資🦀"), "vol 1/é資🦀");
    EXPECT_EQ(printable("\x1b[2Ja\nb\x7f"), "\\x1b[2Ja\\x0ab\\x7f");
    EXPECT_EQ(printable("a\xc2\x9b"), "a\\xc2\\x9b");  // the C1 control character that begins a sequence
    EXPECT_EQ(printable("a\xff\xc3"), "a\\xff\\xc3");
    EXPECT_EQ(printable("a\u202egpj.exe"), "a\\u{202e}gpj.exe");
    for (const char* const bidi : {"\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e",
                                   "\u2066", "\u2067", "\u2068", "\u2069", "\u2028", "\u200b", "\ufeff"})
        EXPECT_TRUE(printable(bidi).starts_with("\\u{")) << printable(bidi);
    EXPECT_EQ(width_of("vol"), 3u);
    EXPECT_EQ(width_of("é資"), 3u);
}

}  // namespace
}  // namespace tarn
