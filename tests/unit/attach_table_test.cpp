// attachtab, line by line: what it says, and what is told of a line that is wrong.
#include "daemon/attachtab/attach_table.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "utils/mapping.hpp"

namespace tarn {
namespace {

TEST(AttachTableTest, a_line_is_a_volume_and_options) {
    const AttachTable table = AttachTable::parse(
        "# comment\n"
        "\n"
        "db\n"
        " \tgolden \t read-only,noauto\r\n"
        "a\\040b\\134 block-size=512,connections=8");
    EXPECT_TRUE(table.mistakes.empty());
    ASSERT_EQ(table.lines.size(), 3u);
    EXPECT_EQ(table.lines[0].options.volume, "db");
    EXPECT_FALSE(table.lines[0].options.read_only);
    EXPECT_EQ(table.lines[0].options.block_size_bytes, 4096u);
    EXPECT_EQ(table.lines[0].options.connections, 0u);
    EXPECT_TRUE(table.lines[0].at_boot);
    EXPECT_EQ(table.lines[0].number, 3u);
    EXPECT_EQ(table.lines[1].options.volume, "golden");
    EXPECT_TRUE(table.lines[1].options.read_only);
    EXPECT_FALSE(table.lines[1].at_boot);
    EXPECT_EQ(table.lines[2].options.volume, "a b\\");
    EXPECT_EQ(table.lines[2].options.block_size_bytes, 512u);
    EXPECT_EQ(table.lines[2].options.connections, 8u);
    EXPECT_EQ(table.lines[2].number, 5u);
}

TEST(AttachTableTest, a_mistake_is_told_with_its_line_and_the_others_count) {
    struct Case {
        const char* line;
        const char* volume;
        const char* reason;
    };
    for (const Case& each : {
             Case{"db readonly", "db", "unknown option \"readonly\"; is read-only meant?"},
             Case{"db quiet", "db", "unknown option \"quiet\""},
             Case{"db block-size=1024", "db", "block-size=1024: the block size is 512 or 4096"},
             Case{"db block-size", "db", "block-size: the block size is 512 or 4096"},
             Case{"db block-size=512x", "db", "block-size=512x: the block size is 512 or 4096"},
             Case{"db connections=0", "db", "connections=0: there are 1 to 8 connections"},
             Case{"db connections=9", "db", "connections=9: there are 1 to 8 connections"},
             Case{"db connections=99999999999", "db", "connections=99999999999: there are 1 to 8 connections"},
             Case{"db read-only=yes", "db", "read-only=yes: read-only has no value"},
             Case{"db read-only noauto", "db",
                  "more than a volume and its options: options are joined by commas, and a blank in a name is \\040"},
             Case{"a//b", "", "\"a//b\" cannot be a volume's name"},
             Case{"a\\012b", "", "\"a\nb\" cannot be a volume's name"},
             Case{"a\\x", "", "in a name a backslash is written \\134, and a blank \\040"},
             Case{"a\\04", "", "in a name a backslash is written \\134, and a blank \\040"},
             Case{"a\\777", "", "in a name a backslash is written \\134, and a blank \\040"},
         }) {
        const AttachTable table = AttachTable::parse("first\n" + std::string(each.line) + "\nlast read-only\n");
        ASSERT_EQ(table.mistakes.size(), 1u) << each.line;
        EXPECT_EQ(table.mistakes[0].number, 2u);
        EXPECT_EQ(table.mistakes[0].volume, each.volume);
        EXPECT_EQ(table.mistakes[0].reason, each.reason);
        EXPECT_EQ(table.lines.size(), 2u) << each.line;
    }
}

// Who reads on takes the bytes that follow for the escape's, whatever they are: here there are none.
TEST(AttachTableTest, an_escape_that_the_text_ends_within_is_a_mistake) {
    const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const Mapping mapping = std::move(*Mapping::create(2 * page_bytes));
    std::byte* const end = mapping.bytes().data() + page_bytes;
    ASSERT_EQ(::mprotect(end, page_bytes, PROT_NONE), 0);
    for (const std::string_view line : {"a\\", "a\\0", "a\\04"}) {
        char* const begin = reinterpret_cast<char*>(end) - line.size();
        std::ranges::copy(line, begin);
        const AttachTable table = AttachTable::parse({begin, line.size()});
        ASSERT_EQ(table.mistakes.size(), 1u) << line;
        EXPECT_EQ(table.mistakes[0].reason, "in a name a backslash is written \\134, and a blank \\040");
    }
}

TEST(AttachTableTest, two_lines_about_a_volume_are_a_mistake) {
    const AttachTable table = AttachTable::parse("db\nother\ndb read-only\n");
    EXPECT_EQ(table.lines.size(), 2u);
    ASSERT_EQ(table.mistakes.size(), 1u);
    EXPECT_EQ(table.mistakes[0].number, 3u);
    EXPECT_EQ(table.mistakes[0].volume, "db");
    EXPECT_EQ(table.mistakes[0].reason, "line 1 is about the same volume");
}

// udev spells both alike: what is written for one would be taken for the other.
TEST(AttachTableTest, two_volumes_whose_devices_have_one_link_are_a_mistake) {
    const AttachTable table = AttachTable::parse("a\\040b\nother\na_b\n");
    EXPECT_EQ(table.lines.size(), 2u);
    ASSERT_EQ(table.mistakes.size(), 1u);
    EXPECT_EQ(table.mistakes[0].number, 3u);
    EXPECT_EQ(table.mistakes[0].volume, "a_b");
    EXPECT_EQ(table.mistakes[0].reason, "the device of line 1 has the same link, /dev/tarn/by-name/a_b");
}

}  // namespace
}  // namespace tarn
