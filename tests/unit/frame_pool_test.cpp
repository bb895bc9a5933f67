// Frames by NUMA node: which are taken first, and where they go back to.
#include "tiers/dram/frame_pool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tiers/dram/nodes.hpp"
#include "utils/file_text.hpp"
#include "utils/mapping.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {
namespace {

unsigned node_now = 0;
unsigned current_node() {
    return node_now;
}

constexpr size_t frame_count = 10;

class FramesOfNodes : public testing::Test {
  protected:
    FrameId take() { return pool_.try_take(use_holder, 0); }
    static size_t part_of(FrameId id) { return Nodes({3, 4, 7}).part_of(id, frame_count); }

    FramePool pool_{std::move(*Arena::create(frame_count)), Nodes({3, 4, 7}, current_node)};
};

TEST_F(FramesOfNodes, those_of_the_threads_node_are_taken_first_then_all_others) {
    node_now = 4;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(part_of(take()), 1u);
    node_now = 7;
    EXPECT_EQ(part_of(take()), 2u);
    node_now = 4;
    for (int i = 0; i < 6; ++i) {
        const FrameId id = take();
        ASSERT_NE(id, no_frame);
        EXPECT_NE(part_of(id), 1u);
    }
    EXPECT_EQ(take(), no_frame);
    EXPECT_EQ(pool_.free_count(), 0u);
}

TEST_F(FramesOfNodes, a_frame_goes_back_to_its_node) {
    node_now = 3;
    for (size_t i = 0; i < frame_count; ++i) ASSERT_NE(take(), no_frame);
    constexpr FrameId of_the_last = frame_count - 1;
    EXPECT_TRUE(pool_.release(of_the_last, use_holder));
    EXPECT_TRUE(pool_.release(0, use_holder));
    node_now = 7;
    EXPECT_EQ(take(), of_the_last);
    EXPECT_EQ(take(), 0u);
}

TEST_F(FramesOfNodes, a_node_without_memory_takes_the_first_ones) {
    node_now = 5;
    EXPECT_EQ(part_of(take()), 0u);
}

// The next process would count the page as held.
TEST_F(FramesOfNodes, the_record_of_a_frame_ends_when_nobody_holds_its_page) {
    const FrameId id = take();
    pool_.record(id).set({.page = 3, .tenure = 1, .role = FrameRecord::Role::shared});
    EXPECT_TRUE(pool_.release(id, use_holder));
    EXPECT_EQ(pool_.record(id).state().role, FrameRecord::Role::none);
}

// Not every way in which a frame gets bytes says that they can be read, and are no zeros.
TEST_F(FramesOfNodes, a_free_frame_says_nothing_of_the_page_that_it_had) {
    const FrameId id = take();
    Frame& frame = pool_.frame(id);
    frame.broken = frame.zeroed = true;
    frame.dirty = frame.writing = all_sectors;
    EXPECT_TRUE(pool_.release(id, use_holder));
    EXPECT_FALSE(frame.broken.load());
    EXPECT_FALSE(frame.zeroed.load());
    EXPECT_EQ(frame.dirty.load(), 0u);
    EXPECT_EQ(frame.writing.load(), 0u);
}

// What the process before was doing with its frames ended with it.
class FramesOfBefore : public testing::Test {
  protected:
    // The pool of the next process.
    std::unique_ptr<FramePool> adopt() const {
        UniqueFd memory(::fcntl(before_->fd(), F_DUPFD_CLOEXEC, 0));
        return std::make_unique<FramePool>(std::move(*Arena::adopt(std::move(memory))));
    }
    Frame& frame() { return before_->frames()[frame_id]; }

    static constexpr FrameId frame_id = 4;
    const std::unique_ptr<Arena> before_ = std::move(*Arena::create(frame_count));
};

// Else its page could not be stored any more, nor leave home's memory.
TEST_F(FramesOfBefore, home_s_bytes_that_were_on_their_way_into_the_store_can_be_stored) {
    for (const Storing was : {Storing::begun, Storing::taken}) {
        frame().uses = use_home;
        frame().home_dirty = true;
        frame().storing = was;
        const std::unique_ptr<FramePool> pool = adopt();
        const Frame& adopted = pool->frame(frame_id);
        EXPECT_EQ(adopted.uses.load(), use_home);
        EXPECT_TRUE(adopted.home_dirty) << "the store may lack them";
        EXPECT_EQ(adopted.storing, Storing::no);
    }
}

// Nobody would release them.
TEST_F(FramesOfBefore, latches_are_gone) {
    FrameWord& word = frame().word;
    word.open(FrameWord::writable);
    ASSERT_TRUE(word.try_latch_exclusive(word.load()));
    const std::unique_ptr<FramePool> pool = adopt();
    EXPECT_FALSE(FrameWord::latched(pool->frame(frame_id).word.load()));
}

TEST(NodesTest, parts_follow_each_other_and_cover_everything) {
    const Nodes nodes({0, 1, 2});
    for (const size_t size : {1u, 2u, 3u, 10u, 4096u, 4097u}) {
        EXPECT_EQ(nodes.begin_of(0, size), 0u);
        EXPECT_EQ(nodes.begin_of(3, size), size);
        for (size_t i = 0; i < size; ++i) {
            const size_t part = nodes.part_of(i, size);
            EXPECT_LE(nodes.begin_of(part, size), i);
            EXPECT_LT(i, nodes.begin_of(part + 1, size));
        }
    }
}

TEST(NodesTest, lists_are_read_as_the_kernel_writes_them) {
    EXPECT_EQ(Nodes::parse("0\n"), std::vector<unsigned>{0});
    EXPECT_EQ(Nodes::parse("0-2,5,8-9\n"), (std::vector<unsigned>{0, 1, 2, 5, 8, 9}));
    for (const char* const list : {"", "\n", "x", "1-", "1,", "-1", "4096", "0-99999999999"})
        EXPECT_TRUE(Nodes::parse(list).empty()) << list;
}

TEST(NodesTest, memory_is_placed_on_the_node) {
    if (text_of("/proc/self/numa_maps").empty()) GTEST_SKIP() << "the kernel knows no nodes";
    const UniqueFd memory(::memfd_create("nodes", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(memory.get(), 4 * page_size), 0);
    const Mapping mapping = std::move(*Mapping::create(4 * page_size, memory.get()));
    const Nodes nodes = Nodes::of_machine();
    const size_t last = nodes.count() - 1;
    nodes.place(mapping.bytes().subspan(page_size), last);
    const std::string placed =
        fmt::format("{:x} prefer:", reinterpret_cast<uintptr_t>(mapping.bytes().data()) + page_size);
    EXPECT_NE(text_of("/proc/self/numa_maps").find(placed), std::string::npos) << text_of("/proc/self/numa_maps");
}

TEST(ArenaTest, what_comes_behind_its_pages_is_apart_and_is_found_by_the_next_process) {
    constexpr size_t landing_bytes = 2 * page_size;
    constexpr size_t clients_bytes = page_size;
    UniqueFd memory;
    {
        const std::unique_ptr<Arena> arena = std::move(*Arena::create(8, Nodes(), landing_bytes, clients_bytes));
        EXPECT_EQ(arena->landing().size(), landing_bytes);
        EXPECT_EQ(arena->clients().size(), clients_bytes);
        EXPECT_EQ(arena->bytes().data() + arena->bytes().size(), arena->landing().data());
        EXPECT_EQ(arena->landing().data() + landing_bytes, arena->clients().data());
        EXPECT_TRUE(std::ranges::all_of(arena->clients(), [](std::byte each) { return each == std::byte{0}; }));
        arena->landing().back() = std::byte{1};
        arena->clients().front() = std::byte{2};
        memory = UniqueFd(::fcntl(arena->fd(), F_DUPFD_CLOEXEC, 0));
    }
    const std::unique_ptr<Arena> adopted = std::move(*Arena::adopt(std::move(memory)));
    EXPECT_EQ(adopted->landing().back(), std::byte{1});
    EXPECT_EQ(adopted->clients().front(), std::byte{2});
}

// Where the kernel may give it huge ones. What was found around that place goes back at once, and the rest with it.
TEST(ArenaTest, its_pages_begin_at_a_huge_page) {
    constexpr size_t huge_page_size = 2 << 20;
    constexpr size_t frames_of_32_mib = 8192;
    const auto mapped = [] { return std::stoull(value_of("/proc/self/status", "VmSize:")); };
    const uint64_t before_kib = mapped();
    for (const size_t count : {frames_of_32_mib, frames_of_32_mib + 1}) {
        const std::unique_ptr<Arena> arena = std::move(*Arena::create(count));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->bytes().data()) % huge_page_size, 0u);
        const uint64_t arena_kib = (count * (page_size + sizeof(Frame))) >> 10;
        EXPECT_LT(mapped(), before_kib + arena_kib + (2 * huge_page_size >> 10));
    }
    EXPECT_LT(mapped(), before_kib + (2 * huge_page_size >> 10));
}

// What a process has on a node that the machine does not have lies anywhere.
TEST(NodesTest, an_arenas_frames_are_placed_by_node) {
    if (text_of("/proc/self/numa_maps").empty()) GTEST_SKIP() << "the kernel knows no nodes";
    constexpr unsigned absent = 1000;
    for (const size_t part : {0u, 1u, 2u}) {
        std::vector<unsigned> ids(3, absent);
        ids[part] = 0;
        const Nodes nodes(ids);
        const std::unique_ptr<Arena> arena = std::move(*Arena::create(frame_count, nodes));
        const size_t begin = nodes.begin_of(part, frame_count);
        const std::string first =
            fmt::format("{:x} prefer:0", reinterpret_cast<uintptr_t>(arena->bytes().subspan(begin * page_size).data()));
        const std::string maps = text_of("/proc/self/numa_maps");
        const size_t at = maps.find(first);
        ASSERT_NE(at, std::string::npos) << maps;
        const std::string line = maps.substr(at, maps.find('\n', at) - at);
        const size_t pages = nodes.begin_of(part + 1, frame_count) - begin;
        EXPECT_NE((line + ' ').find(fmt::format(" dirty={} ", pages)), std::string::npos) << line;
    }
}

}  // namespace
}  // namespace tarn
