#include "daemon/configuration/memory_limit.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

constexpr uint64_t mib = uint64_t{1} << 20;
constexpr uint64_t gib = uint64_t{1} << 30;

class MemoryLimitTest : public testing::Test {
  protected:
    void SetUp() override {
        write("proc/meminfo", "MemTotal:       25165824 kB\nMemFree: 1 kB\nMemAvailable:   20971520 kB\n");
    }
    void write(const std::string& path, const std::string& text) {
        std::filesystem::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    std::string reason(uint64_t memory_bytes) const { return too_much_memory(memory_bytes, memory_limits(root_)); }
    ScratchDirectory scratch_;
    std::filesystem::path root_ = scratch_.path();
};

TEST_F(MemoryLimitTest, of_the_hosts_memory_some_stays_for_others) {
    EXPECT_EQ(reason(22 * gib), "");
    EXPECT_EQ(reason(23 * gib),
              "23 GiB is too much: this host has 24 GiB, of which 1.6 GiB stay for the kernel and for others, a "
              "sixteenth and 64 MiB; write 22976MiB or less");
    EXPECT_EQ(reason(22976 * mib), "");
    EXPECT_NE(reason(22977 * mib), "");
    EXPECT_NE(reason(900 * 1024 * gib), "");
    EXPECT_EQ(available_memory(root_), 20 * gib);
}

TEST_F(MemoryLimitTest, the_cgroup_and_all_above_it_count) {
    write("proc/self/cgroup", "0::/a.slice/tarnd.service\n");
    write("sys/fs/cgroup/a.slice/tarnd.service/memory.max", "max\n");
    EXPECT_EQ(reason(20 * gib), "");
    write("sys/fs/cgroup/a.slice/memory.max", "4294967296\n");
    EXPECT_NE(reason(20 * gib).find("the cgroup /a.slice allows 4 GiB"), std::string::npos) << reason(20 * gib);
    EXPECT_EQ(reason(3 * gib), "");
    write("sys/fs/cgroup/a.slice/tarnd.service/memory.max", "1073741824\n");
    EXPECT_NE(reason(gib).find("the cgroup /a.slice/tarnd.service allows 1 GiB"), std::string::npos) << reason(gib);
}

TEST_F(MemoryLimitTest, cgroups_of_version_1_count) {
    write("proc/self/cgroup", "4:memory:/box/one\n2:cpu:/box\n0::/\n");
    write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_NE(reason(2 * gib).find("the cgroup /box allows 2 GiB"), std::string::npos) << reason(2 * gib);
}

// Its path is the host's, and it sees its own group as the root.
TEST_F(MemoryLimitTest, in_a_container_the_root_counts) {
    write("proc/self/cgroup", "0::/docker/0123456789abcdef\n");
    write("sys/fs/cgroup/memory.max", "536870912\n");
    EXPECT_NE(reason(gib).find("the cgroup / allows 512 MiB"), std::string::npos) << reason(gib);
}

TEST_F(MemoryLimitTest, what_cannot_be_learned_limits_nothing) {
    std::filesystem::remove_all(root_ / "proc");
    EXPECT_EQ(reason(900 * gib), "");
    EXPECT_EQ(available_memory(root_), 0u);
}

TEST_F(MemoryLimitTest, a_limit_smaller_than_what_is_to_stay_leaves_nothing) {
    write("proc/self/cgroup", "0::/\n");
    write("sys/fs/cgroup/memory.max", "33554432\n");
    EXPECT_NE(reason(mib).find("write 0MiB"), std::string::npos);
}

}  // namespace
}  // namespace tarn
