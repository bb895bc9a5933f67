// What systemd is told of the lines of attachtab and fstab, and how it spells names.
#include "daemon/attachtab/attach_units.hpp"

#include <gtest/gtest.h>

#include "daemon/attachtab/unit_name.hpp"

namespace tarn {
namespace {

TEST(UnitNameTest, names_are_spelled_as_systemd_escape_does) {
    EXPECT_EQ(attach_unit_of("db"), "tarn-attach@db.service");
    EXPECT_EQ(attach_unit_of("my-db"), "tarn-attach@my\\x2ddb.service");
    EXPECT_EQ(attach_unit_of("a/b.c"), "tarn-attach@a-b.c.service");
    EXPECT_EQ(attach_unit_of(".a"), "tarn-attach@\\x2ea.service");
    EXPECT_EQ(attach_unit_of("a b%$\\"), "tarn-attach@a\\x20b\\x25\\x24\\x5c.service");
    EXPECT_EQ(attach_unit_of("ö"), "tarn-attach@\\xc3\\xb6.service");
    EXPECT_EQ(mount_unit_of("/"), "-.mount");
    EXPECT_EQ(mount_unit_of("/srv/my-db"), "srv-my\\x2ddb.mount");
    EXPECT_EQ(mount_unit_of("/.hidden"), "\\x2ehidden.mount");
}

std::string mount_text(const std::string& unit) {
    return "[Unit]\nWants=" + unit + "\nAfter=" + unit + "\nStopPropagatedFrom=" + unit + "\n";
}

TEST(AttachUnitsTest, a_boot_wants_all_but_those_with_noauto) {
    const AttachUnits units = attach_units(AttachTable::parse("db\nlater noauto\na/b\n"), {});
    EXPECT_EQ(units.warnings, std::vector<std::string>());
    EXPECT_EQ(
        units.files,
        (std::vector<UnitFile>{{.path = "remote-fs.target.d/50-tarn-attach.conf",
                                .text = "[Unit]\nWants=tarn-attach@a-b.service\nWants=tarn-attach@db.service\n"}}));
    EXPECT_TRUE(attach_units(AttachTable::parse("later noauto"), {}).files.empty());
    EXPECT_TRUE(attach_units({}, {}).files.empty());
}

TEST(AttachUnitsTest, what_is_mounted_from_a_volume_waits_for_it_and_ends_before_it) {
    const std::vector<MountLine> mounts = {
        {.device = "/dev/tarn/by-name/db", .directory = "/srv", .is_netdev = true},
        {.device = "/dev/tarn/by-name/db-part12", .directory = "/srv/part", .is_netdev = true},
        {.device = "/dev/tarn/by-name/db-part", .directory = "/other", .is_netdev = true},
        {.device = "/dev/tarn/by-name/db-part1x", .directory = "/other", .is_netdev = true},
        {.device = "/dev/tarn/by-name/db2", .directory = "/other", .is_netdev = true},
        {.device = "/dev/sda1", .directory = "/home", .is_netdev = false},
    };
    const AttachUnits units = attach_units(AttachTable::parse("db noauto"), mounts);
    EXPECT_EQ(units.warnings, std::vector<std::string>());
    EXPECT_EQ(units.files,
              (std::vector<UnitFile>{
                  {.path = "srv.mount.d/50-tarn-attach.conf", .text = mount_text("tarn-attach@db.service")},
                  {.path = "srv-part.mount.d/50-tarn-attach.conf", .text = mount_text("tarn-attach@db.service")}}));
}

TEST(AttachUnitsTest, a_file_system_is_found_by_the_link_that_udev_makes) {
    const std::vector<MountLine> mounts = {
        {.device = "/dev/tarn/by-name/my_disk", .directory = "/srv", .is_netdev = true}};
    const AttachUnits units = attach_units(AttachTable::parse("my\\040disk noauto"), mounts);
    ASSERT_EQ(units.files.size(), 1u);
    EXPECT_EQ(units.files[0].text, mount_text("tarn-attach@my\\x20disk.service"));
}

TEST(AttachUnitsTest, without_netdev_a_mount_would_wait_for_what_comes_after_it) {
    const std::vector<MountLine> mounts = {{.device = "/dev/tarn/by-name/db", .directory = "/srv", .is_netdev = false}};
    const AttachUnits units = attach_units(AttachTable::parse("db noauto"), mounts);
    EXPECT_TRUE(units.files.empty());
    ASSERT_EQ(units.warnings.size(), 1u);
    EXPECT_TRUE(units.warnings[0].starts_with("/etc/fstab: /srv lacks the option _netdev")) << units.warnings[0];
}

TEST(AttachUnitsTest, a_mistake_lets_its_unit_fail_where_that_can_be_named) {
    const AttachUnits units = attach_units(AttachTable::parse("db what\na//b\nother noauto\nother\n"), {});
    EXPECT_EQ(units.warnings, (std::vector<std::string>{"/etc/tarn/attachtab:1: unknown option \"what\"",
                                                        "/etc/tarn/attachtab:2: \"a//b\" cannot be a volume's name",
                                                        "/etc/tarn/attachtab:4: line 3 is about the same volume"}));
    ASSERT_EQ(units.files.size(), 1u);
    EXPECT_EQ(units.files[0].text, "[Unit]\nWants=tarn-attach@db.service\n");
}

TEST(AttachUnitsTest, a_name_that_no_unit_can_have_is_left_out) {
    const std::string longest(255 - std::string("tarn-attach@.service").size(), 'x');
    EXPECT_EQ(attach_units(AttachTable::parse(longest), {}).files.size(), 1u);
    const AttachUnits units = attach_units(AttachTable::parse(longest + "x"), {});
    EXPECT_TRUE(units.files.empty());
    ASSERT_EQ(units.warnings.size(), 1u);
    EXPECT_NE(units.warnings[0].find("too long"), std::string::npos) << units.warnings[0];
}

}  // namespace
}  // namespace tarn
