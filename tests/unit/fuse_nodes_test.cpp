#include <gtest/gtest.h>

#include "frontends/fuse/nodes.hpp"

namespace tarn::fuse {
namespace {

std::vector<VolumeEntry> volumes(std::initializer_list<const char*> names) {
    std::vector<VolumeEntry> list;
    for (const char* const name : names) list.push_back({.name = name, .id = static_cast<VolumeId>(list.size() + 1)});
    return list;
}

std::vector<std::string> shown(const std::vector<VolumeEntry>& list, std::string_view path) {
    std::vector<std::string> names;
    for (const Child& child : children(list, path)) names.push_back(child.name + (child.volume ? "" : "/"));
    return names;
}

using Names = std::vector<std::string>;

TEST(FuseNodes, names_with_slashes_make_directories) {
    const auto list = volumes({"a", "b/c/d", "b/c/e", "b/f", "bc"});
    EXPECT_EQ(shown(list, ""), (Names{"a", "b/", "bc"}));
    EXPECT_EQ(shown(list, "b"), (Names{"c/", "f"}));
    EXPECT_EQ(shown(list, "b/c"), (Names{"d", "e"}));
    EXPECT_EQ(shown(list, "nothing"), Names{});
}

TEST(FuseNodes, a_volume_hides_the_directory_of_its_name) {
    EXPECT_EQ(shown(volumes({"a", "a/b"}), ""), Names{"a"});
    EXPECT_EQ(shown(volumes({"x/a/b", "x/a"}), "x"), Names{"a"});
}

TEST(FuseNodes, a_directory_exists_while_a_volume_lies_below) {
    const auto list = volumes({"b/c/d", "bb"});
    EXPECT_TRUE(is_directory(list, ""));
    EXPECT_TRUE(is_directory(list, "b"));
    EXPECT_TRUE(is_directory(list, "b/c"));
    EXPECT_FALSE(is_directory(list, "b/c/d"));
    EXPECT_FALSE(is_directory(list, "bb"));
    EXPECT_FALSE(is_directory(list, "b/"));
    EXPECT_FALSE(is_directory({}, "b"));
}

TEST(FuseNodes, numbers_do_not_collide) {
    EXPECT_NE(node_of_volume(0), 0u);
    EXPECT_NE(node_of_volume(1), root_node);
    EXPECT_EQ(node_of_directory(""), root_node);
    EXPECT_GT(node_of_directory("a"), node_of_volume(volume_id_max));
    EXPECT_NE(node_of_directory("a"), node_of_directory("b"));
    EXPECT_EQ(node_of_directory("a/b"), node_of_directory("a/b"));
}

TEST(FuseNodes, a_node_lives_as_long_as_its_lookups) {
    Nodes nodes;
    nodes.remember(7, {.path = "x", .directory = false});
    nodes.remember(7, {.path = "x", .directory = false});
    nodes.forget(7, 1);
    EXPECT_EQ(nodes.find(7)->path, "x");
    nodes.forget(7, 100);  // more than there were
    EXPECT_FALSE(nodes.find(7));
    nodes.forget(8, 1);
    EXPECT_EQ(nodes.size(), 0u);
    EXPECT_TRUE(nodes.find(root_node)->directory);
}

TEST(FuseNodes, joins_names) {
    EXPECT_EQ(join("", "a"), "a");
    EXPECT_EQ(join("a/b", "c"), "a/b/c");
}

}  // namespace
}  // namespace tarn::fuse
