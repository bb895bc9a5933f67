// CPUs, and how they are divided among shards.
#include "utils/cpu_set.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "daemon/process/shards.hpp"

namespace tarn {
namespace {

TEST(CpuSet, is_ordered_and_holds_each_once) {
    const CpuSet cpus{7, 1, 3, 1};
    EXPECT_EQ(std::vector(cpus.list().begin(), cpus.list().end()), (std::vector<unsigned>{1, 3, 7}));
    EXPECT_TRUE(cpus.contains(3));
    EXPECT_FALSE(cpus.contains(2));
    EXPECT_EQ(cpus & (CpuSet{0, 3, 7}), (CpuSet{3, 7}));
    EXPECT_TRUE((cpus & CpuSet{2}).empty());
    EXPECT_EQ(cpus - (CpuSet{0, 3, 8}), (CpuSet{1, 7}));
    EXPECT_TRUE((cpus - cpus).empty());
}

TEST(CpuSet, has_the_kernels_text) {
    EXPECT_EQ((CpuSet{0, 1, 2, 5, 7, 8}).text(), "0-2,5,7-8");
    EXPECT_EQ(CpuSet{3}.text(), "3");
    EXPECT_EQ(CpuSet{}.text(), "");
}

TEST(CpuSet, of_a_thread_is_what_it_was_bound_to) {
    const Result<CpuSet> all = CpuSet::of_thread();
    ASSERT_TRUE(all && !all->empty());
    const CpuSet last{all->list().back()};
    std::thread([&] {
        EXPECT_TRUE(last.bind());
        EXPECT_EQ(*CpuSet::of_thread(), last);
        EXPECT_EQ(*CpuSet::of_thread(::gettid()), last);
    }).join();
    EXPECT_EQ(*CpuSet::of_thread(), *all) << "another thread's affinity changed";
}

TEST(CpuSet, that_a_thread_may_not_use_is_refused) {
    const Result<> none = CpuSet{}.bind();
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Errc::invalid);
    const Result<> beyond = CpuSet{60000}.bind();  // no machine has it
    ASSERT_FALSE(beyond);
    EXPECT_EQ(beyond.error().code, Errc::invalid);
    EXPECT_EQ(CpuSet::of_thread(-1).error().code, Errc::io);
}

TEST(DividedCpus, are_one_for_each_shard_where_there_are_as_many) {
    EXPECT_EQ(divide(CpuSet{4, 6, 9}, 3), (std::vector<CpuSet>{{4}, {6}, {9}}));
}

TEST(DividedCpus, are_neighbours_where_shards_are_fewer) {
    EXPECT_EQ(divide(CpuSet{0, 1, 2, 3, 4}, 2), (std::vector<CpuSet>{{0, 1}, {2, 3, 4}}));
    EXPECT_EQ(divide(CpuSet{250, 255}, 1), (std::vector<CpuSet>{{250, 255}}));
}

TEST(DividedCpus, are_shared_where_shards_are_more) {
    EXPECT_EQ(divide(CpuSet{2, 3}, 5), (std::vector<CpuSet>{{2}, {3}, {2}, {3}, {2}}));
}

}  // namespace
}  // namespace tarn
