// What tarn doctor makes of machines that lack one thing each.
#include "daemon/doctor/doctor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

class DoctorTest : public testing::Test {
  protected:
    using Verdict = Finding::Verdict;

    // A machine with all that tarn can use.
    DoctorTest() {
        write("/proc/sys/kernel/io_uring_disabled", "0\n");
        write("/sys/module/nbd/version", "");
        write("/usr/lib/udev/rules.d/60-tarn.rules", "");
        write("/dev/fuse", "");
        write("/sys/module/fuse/parameters/enable_uring", "Y\n");
        write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n");
        write("/proc/cpuinfo", "flags\t\t: fpu hypervisor lahf_lm\n");
        write("/sys/module/haltpoll/parameters/guest_halt_poll_ns", "200000\n");
        write("/sys/module/nvme/parameters/poll_queues", "2\n");
    }
    void write(const std::string& path, const std::string& text) {
        const std::filesystem::path whole = machine_.root + path;
        std::filesystem::create_directories(whole.parent_path());
        std::ofstream(whole) << text;
    }
    void remove(const std::string& path) { std::filesystem::remove_all(machine_.root + path); }
    std::vector<Finding> not_good() const {
        std::vector<Finding> findings = examine(machine_);
        std::erase_if(findings, [](const Finding& each) { return each.verdict == Verdict::good; });
        for (const Finding& each : findings) EXPECT_TRUE(!each.mend.empty() && !each.effect.empty()) << each.about;
        return findings;
    }
    // Of what was just changed, and nothing else.
    void expect(Verdict verdict, const std::string& about, const std::string& mend) {
        const std::vector<Finding> findings = not_good();
        ASSERT_EQ(findings.size(), 1u) << about;
        EXPECT_EQ(findings[0].about, about);
        EXPECT_EQ(findings[0].verdict, verdict) << about;
        EXPECT_EQ(findings[0].mend.substr(0, mend.size()), mend);
    }

    const ScratchDirectory directory_;
    Machine machine_{.root = directory_ / "root",
                     .kernel = "6.1.0-9-amd64",
                     .user = 0,
                     .open_files_max = 1 << 20,
                     .nice_max = 0,
                     .has_clock_set = true};
};

TEST_F(DoctorTest, a_machine_that_has_everything_needs_nothing) {
    EXPECT_TRUE(not_good().empty());
    EXPECT_GE(examine(machine_).size(), 9u);
    machine_.user = 1000;
    machine_.nice_max = 20;
    write("/usr/bin/fusermount3", "");
    EXPECT_TRUE(not_good().empty());
}

TEST_F(DoctorTest, rings_that_are_forbidden_are_missing) {
    write("/proc/sys/kernel/io_uring_disabled", "2\n");
    expect(Verdict::missing, "io_uring", "sysctl kernel.io_uring_disabled=0");
    write("/proc/sys/kernel/io_uring_disabled", "1\n");
    EXPECT_TRUE(not_good().empty()) << "root may";
    remove("/proc/sys/kernel/io_uring_disabled");
    EXPECT_TRUE(not_good().empty()) << "an older kernel";
    write("/proc/sys/kernel/io_uring_disabled", "1\n");
    machine_.user = 1000;
    machine_.nice_max = 20;
    write("/bin/fusermount3", "");
    expect(Verdict::missing, "io_uring", "sysctl");
}

TEST_F(DoctorTest, a_driver_that_is_not_loaded_is_told_from_one_that_is_not_there) {
    remove("/sys/module/nbd");
    expect(Verdict::missing, "block devices", "a kernel with CONFIG_BLK_DEV_NBD");
    write("/lib/modules/6.1.0-9-amd64/modules.dep", "kernel/drivers/block/nbd.ko:\n");
    expect(Verdict::better, "block devices", "modprobe nbd");
    machine_.kernel = "another";
    expect(Verdict::missing, "block devices", "a kernel with CONFIG_BLK_DEV_NBD");
}

TEST_F(DoctorTest, what_mounts_need_depends_on_who_asks) {
    machine_.user = 1000;
    machine_.nice_max = 20;
    expect(Verdict::missing, "mounts", "apt install fuse3");
    machine_.user = 0;
    remove("/dev/fuse");
    expect(Verdict::missing, "mounts", "modprobe fuse");
    write("/lib/modules/6.1.0-9-amd64/modules.builtin", "kernel/fs/fuse/fuse.ko\n");
    expect(Verdict::better, "mounts", "modprobe fuse");
}

TEST_F(DoctorTest, switches_of_the_kernel_are_named_with_what_sets_them) {
    write("/sys/module/fuse/parameters/enable_uring", "N\n");
    expect(Verdict::better, "mounts over io_uring", "echo Y > /sys/module/fuse/parameters/enable_uring");
    remove("/sys/module/fuse/parameters/enable_uring");
    expect(Verdict::better, "mounts over io_uring", "Linux 6.14 or newer");
    write("/sys/module/fuse/parameters/enable_uring", "Y\n");
    write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n");
    expect(Verdict::better, "large pages", "echo advise > ");
    write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise never [deny] force\n");
    expect(Verdict::better, "large pages", "echo advise > ");
    remove("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    expect(Verdict::better, "large pages", "a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
}

TEST_F(DoctorTest, idle_cpus_matter_on_a_virtual_machine_alone) {
    write("/sys/module/haltpoll/parameters/guest_halt_poll_ns", "0\n");
    expect(Verdict::better, "idle CPUs", "echo 200000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns");
    write("/proc/cpuinfo", "flags\t\t: fpu lahf_lm\n");
    EXPECT_TRUE(not_good().empty());
    write("/proc/cpuinfo", "flags\t\t: fpu hypervisor lahf_lm\n");
    remove("/sys/module/haltpoll");
    EXPECT_TRUE(not_good().empty());
}

TEST_F(DoctorTest, nvme_without_queues_for_polling_could_be_better) {
    write("/sys/module/nvme/parameters/poll_queues", "0\n");
    expect(Verdict::better, "NVMe", "echo options nvme poll_queues=2");
    remove("/sys/module/nvme");
    EXPECT_TRUE(not_good().empty());
}

TEST_F(DoctorTest, limits_and_the_clock_are_looked_at) {
    machine_.open_files_max = 1024;
    expect(Verdict::better, "open files", "ulimit -Hn 65536");
    machine_.open_files_max = 65536;
    machine_.has_clock_set = false;
    expect(Verdict::better, "clock", "apt install systemd-timesyncd");
    machine_.has_clock_set = true;
    machine_.user = 1000;
    write("/usr/bin/fusermount3", "");
    expect(Verdict::better, "scheduling", "ulimit -e 20");
}

TEST_F(DoctorTest, links_need_the_rules) {
    remove("/usr/lib/udev/rules.d/60-tarn.rules");
    expect(Verdict::better, "links of block devices", "install the package");
    write("/etc/udev/rules.d/60-tarn.rules", "");
    EXPECT_TRUE(not_good().empty());
}

TEST(Doctor, says_something_of_this_machine) {
    const Machine machine = this_machine(true);
    EXPECT_FALSE(machine.kernel.empty());
    EXPECT_GT(machine.open_files_max, 0u);
    EXPECT_GE(examine(machine).size(), 8u);
}

}  // namespace
}  // namespace tarn
