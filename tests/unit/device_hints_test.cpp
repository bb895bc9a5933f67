// What is said of a device that is in the way of an attach or a detach; tests/vm/attach.bats meets real ones.
#include "daemon/cli/device_hints.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

class DeviceHints : public testing::Test {
  protected:
    DeviceHints() {
        make("sys/block/nbd901/pid", "12");
        make("sys/block/nbd901/backend", "tarn/by-name/my disk");
        make("proc/self/mountinfo", "20 1 254:0 / / rw - ext4 /dev/root rw");
    }
    void make(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = scratch_.path() / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }
    void mount() const { make("proc/self/mountinfo", "21 20 43:32 / /srv/my\\040data rw - ext4 /dev/nbd901 rw"); }
    void open() const {
        make("proc/12/comm", "fio");
        std::filesystem::create_directories(scratch_.path() / "proc/12/fd");
        std::filesystem::create_symlink("/dev/nbd901", scratch_.path() / "proc/12/fd/3");
    }
    std::string to_attach(const std::string& volume) const { return hint_about_device_of(devices(), volume); }
    // As it is told: "cause; try: hint".
    std::string to_detach() const {
        const std::optional<Failure> use = use_of(devices(), "nbd901", std::chrono::milliseconds(0));
        if (use) EXPECT_EQ(use->exit, Exit::busy);
        return use ? use->cause + "; try: " + use->hint : "";
    }
    BlockDevices devices() const { return BlockDevices(scratch_.path()); }

  private:
    ScratchDirectory scratch_;
};

TEST_F(DeviceHints, a_device_that_nobody_serves_is_ended_by_force_unless_it_is_mounted) {
    EXPECT_EQ(to_attach("other"), "");
    EXPECT_EQ(to_attach("nbd901"), "") << "a volume of that name has no device";
    EXPECT_EQ(to_attach("my disk"), "tarn detach --force my disk, if nobody serves it");
    mount();
    EXPECT_EQ(to_attach("my disk"), "umount /srv/my data, which has /dev/nbd901 still");
}

TEST_F(DeviceHints, who_has_a_device_is_named_with_what_ends_that) {
    EXPECT_EQ(to_detach(), "");
    mount();
    EXPECT_EQ(to_detach(),
              "/dev/nbd901 is mounted on /srv/my data; try: umount /srv/my data; --force ends it all the same, and its "
              "requests fail");
    open();
    EXPECT_EQ(to_detach(),
              "/dev/nbd901 is open in fio (process 12); try: end that; --force ends it all the same, and its requests "
              "fail");
}

}  // namespace
}  // namespace tarn
