// How the devices of volumes are called in /dev.
#include "daemon/attachments/block_device.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/attachments/unserved_devices.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

// As udev 252 makes them by the shipped rules; tests/vm/systemd.bats asks a running one.
TEST(BlockDeviceTest, a_link_has_the_name_that_udev_gives_it) {
    EXPECT_EQ(link_of("db"), "/dev/tarn/by-name/db");
    EXPECT_EQ(link_of("a/b-c.d"), "/dev/tarn/by-name/a/b-c.d");
    EXPECT_EQ(link_of("a  b"), "/dev/tarn/by-name/a_b");
    EXPECT_EQ(link_of(" a b "), "/dev/tarn/by-name/a_b");
    EXPECT_EQ(link_of(" "), "/dev/tarn/by-name/");
    EXPECT_EQ(link_of("50%,$x?!"), "/dev/tarn/by-name/50___x__");
    EXPECT_EQ(link_of("größe"), "/dev/tarn/by-name/größe");
    EXPECT_EQ(link_of("a\\x41\\b"), "/dev/tarn/by-name/a\\x41_b");
}

TEST(BlockDeviceTest, a_name_that_is_more_than_a_device_is_none) {
    EXPECT_EQ(index_of("nbd12"), 12u);
    for (const char* const name : {"nbd", "nbd0p1", "nbd0xyz", "nbd01", "nbd-1", "nbd 1", "sda", ""})
        EXPECT_EQ(index_of(name), std::nullopt) << name;
}

TEST(BlockDeviceTest, a_device_that_cannot_be_looked_at_is_not_gone) {
    const std::string none = "nbd-none";
    const BlockDevices devices;
    EXPECT_TRUE(devices.is_gone(none, "db", 0));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit nothing{.rlim_cur = 0, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &nothing), 0);
    const bool is_gone_unseen = devices.is_gone(none, "db", 0);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_FALSE(is_gone_unseen);
}

// For a moment, say.
TEST(BlockDeviceTest, a_device_of_which_one_thing_cannot_be_read_is_not_gone) {
    for (const std::string attribute : {"pid", "backend"}) {
        const ScratchDirectory root;
        const std::filesystem::path device = root.path() / "sys/block/nbd0";
        std::filesystem::create_directories(device);
        std::ofstream(device / "pid") << "5\n";
        std::ofstream(device / "backend") << backend_of("db") << "\n";
        std::filesystem::remove(device / attribute);
        std::filesystem::create_symlink(attribute, device / attribute);  // to itself: not even root can open it
        EXPECT_FALSE(BlockDevices(root.path()).is_gone("nbd0", "db", 5)) << attribute;
    }
}

class OpenedBy : public testing::Test {
  protected:
    void opens(const std::string& process, const std::string& program, const std::string& path) const {
        const std::filesystem::path directory = scratch_.path() / "proc" / process;
        std::filesystem::create_directories(directory / "fd");
        std::ofstream(directory / "comm") << program << "\n";
        std::filesystem::create_symlink("/dev/null", directory / "fd/0");
        std::filesystem::create_symlink(path, directory / "fd/3");
    }
    std::string opener() const { return BlockDevices(scratch_.path()).opened_by("nbd1"); }

  private:
    ScratchDirectory scratch_;
};

TEST_F(OpenedBy, a_program_that_has_the_device_open_is_named) {
    opens("12", "fio", "/dev/nbd1");
    EXPECT_EQ(opener(), "fio (process 12)");
}

TEST_F(OpenedBy, a_program_that_has_a_partition_open_is_named) {
    opens("12", "fio", "/dev/nbd1p15");
    EXPECT_EQ(opener(), "fio (process 12)");
}

TEST_F(OpenedBy, other_devices_udev_and_this_process_are_passed_over) {
    opens("12", "fio", "/dev/nbd10");
    opens("13", "fio", "/dev/nbd1part");
    opens("14", "(udev-worker)", "/dev/nbd1");
    opens("15", "systemd-udevd", "/dev/nbd1");
    opens(std::to_string(::getpid()), "tarn", "/dev/nbd1");
    opens("no_process", "fio", "/dev/nbd1");
    EXPECT_EQ(opener(), "");
}

class MountedDevice : public testing::Test {
  protected:
    void SetUp() override {
        make("sys/block/nbd1/dev", "43:32");
        make("sys/block/nbd1/pid", "12");
        make("sys/block/nbd1/backend", "tarn/by-name/my disk");
        make("sys/block/nbd1/nbd1p2/dev", "259:7");
        make("sys/block/nbd2/pid", "12");
        make("sys/block/nbd2/backend", "the device of another program");
        make("sys/block/nbd3/backend", "tarn/by-name/gone");
        make("sys/block/sda/pid", "12");
        make("sys/block/sda/backend", "tarn/by-name/none");
    }
    void make(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = scratch_.path() / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }
    std::string point_with(const std::string& line) const {
        make("proc/self/mountinfo",
             "20 1 254:0 / / rw - ext4 /dev/root rw\n" + line + "\n30 20 43:3 / /b rw - ext4 /dev/nbd10 rw");
        return BlockDevices(scratch_.path()).mount_point_of("nbd1");
    }

    ScratchDirectory scratch_;
};

TEST_F(MountedDevice, is_known_by_its_number_or_its_name_or_those_of_a_part) {
    EXPECT_EQ(point_with("21 20 43:32 / /srv/my\\040data rw shared:1 - ext4 /dev/mapper/other rw"), "/srv/my data");
    EXPECT_EQ(point_with("21 20 259:7 / /part rw - ext4 /dev/disk/by-id/7 rw"), "/part");
    EXPECT_EQ(point_with("21 20 0:40 /vol /btrfs rw - btrfs /dev/nbd1 rw"), "/btrfs");
    EXPECT_EQ(point_with("21 20 43:32 / /first rw - ext4 /dev/nbd1 rw\n22 20 43:32 / /last rw - ext4 /dev/nbd1 rw"),
              "/last");
    EXPECT_EQ(point_with("21 20 43:3 / /srv rw - ext4 /dev/nbd11 rw"), "");
}

// Never by what a volume is called: nbd2 may be the name of one.
TEST_F(MountedDevice, is_found_by_its_path_its_link_and_those_of_a_part) {
    for (const char* const name : {"nbd1", "nbd1p2", "nbd2", "nbd10", "nbd3"}) make(std::string("dev/") + name, "");
    std::filesystem::create_directories(scratch_.path() / "dev/tarn/by-name");
    std::filesystem::create_symlink("../../nbd1", scratch_.path() / "dev/tarn/by-name/my_disk");
    make("elsewhere/nbd1", "");
    const BlockDevices devices(scratch_.path());
    for (const char* const path : {"/dev/nbd1", "/dev/nbd1p2", "/dev/tarn/by-name/my_disk", "/dev/../dev/nbd1"})
        EXPECT_EQ(devices.volume_at(path), "my disk") << path;
    for (const char* const path : {"/dev/nbd2", "/dev/nbd10", "/dev/nbd3", "/dev/none", "/elsewhere/nbd1", "/"})
        EXPECT_EQ(devices.volume_at(path), std::nullopt) << path;
}

TEST_F(MountedDevice, those_that_are_connected_as_volumes_are_told_from_others) {
    EXPECT_EQ(BlockDevices(scratch_.path()).all_of_tarn(),
              (std::vector<std::pair<std::string, std::string>>{{"nbd1", "my disk"}}));
}

TEST_F(MountedDevice, those_that_nobody_serves_are_named_in_the_log) {
    make("sys/block/nbd4/pid", "12");
    make("sys/block/nbd4/backend", "tarn/by-name/other");
    testing::internal::CaptureStderr();
    warn_of_unserved_devices(BlockDevices(scratch_.path()), {{.volume = "other", .device = "nbd4"}});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(" warning /dev/nbd1 is a block device of volume my disk that this tarnd does not serve"),
              std::string::npos)
        << said;
    for (const char* const other : {"nbd2", "nbd3", "nbd4", "sda"})
        EXPECT_EQ(said.find(other), std::string::npos) << said;
}

TEST_F(MountedDevice, is_used_where_another_mount_namespace_has_it) {
    make("proc/self/mountinfo", "20 1 254:0 / / rw - ext4 /dev/root rw");
    const auto in_container = [&](const std::string& line) {
        make("proc/40/mountinfo", line);
        std::filesystem::create_directories(scratch_.path() / "proc/40/ns");
        std::error_code is_there;
        std::filesystem::create_symlink("mnt:[4026532000]", scratch_.path() / "proc/40/ns/mnt", is_there);
        return BlockDevices(scratch_.path()).is_used("nbd1");
    };
    EXPECT_FALSE(in_container("30 20 43:3 / /srv rw - ext4 /dev/nbd10 rw"));
    EXPECT_TRUE(in_container("30 20 43:32 / /srv rw - ext4 /dev/tarn/by-name/my_disk rw"));
    EXPECT_TRUE(in_container("30 20 0:40 / /srv rw - btrfs /dev/nbd1 rw"));
    EXPECT_TRUE(in_container("30 20 259:7 / /srv rw - ext4 /dev/disk/by-id/7 rw"));
}

// By the name of the volume, or of the device; never by the name of another program's.
TEST_F(MountedDevice, of_another_program_is_no_device_of_ours) {
    const BlockDevices devices(scratch_.path());
    EXPECT_EQ(devices.device_of("my disk"), "nbd1");
    EXPECT_EQ(devices.device_of("nbd1"), "nbd1");
    for (const char* const name : {"nbd2", "nbd3", "nbd9", "sda", "the device of another program", "gone", "none"})
        EXPECT_EQ(devices.device_of(name), std::nullopt) << name;
}

TEST(BlockDeviceTest, whose_thread_is_not_known_is_there_and_another_volume_is_not) {
    const ScratchDirectory root;
    const BlockDevices devices(root.path());
    std::filesystem::create_directories(root.path() / "sys/block/nbd0");
    std::ofstream(root.path() / "sys/block/nbd0/pid") << "5\n";
    std::ofstream(root.path() / "sys/block/nbd0/backend") << backend_of("db") << "\n";
    EXPECT_FALSE(devices.is_gone("nbd0", "db", 0));
    EXPECT_FALSE(devices.is_gone("nbd0", "db", 5));
    EXPECT_TRUE(devices.is_gone("nbd0", "db", 6));
    EXPECT_TRUE(devices.is_gone("nbd0", "logs", 0));
}

TEST_F(MountedDevice, is_read_only_where_the_kernel_says_so) {
    const BlockDevices devices(scratch_.path());
    EXPECT_FALSE(devices.is_read_only("nbd1")) << "it says nothing";
    make("sys/block/nbd1/ro", "0");
    EXPECT_FALSE(devices.is_read_only("nbd1"));
    make("sys/block/nbd1/ro", "1");
    EXPECT_TRUE(devices.is_read_only("nbd1"));
    EXPECT_FALSE(devices.is_read_only("nbd2"));
}

}  // namespace
}  // namespace tarn
