#include "daemon/keeper/left_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tarn {
namespace {

using StoreName = std::array<uint8_t, 16>;

constexpr StoreName ours{1};
constexpr StoreName theirs{2};

Keeper::Kept memory_of(const StoreName& store, uint32_t epoch) {
    const auto arena = Arena::create(4);
    EXPECT_TRUE(arena);
    (*arena)->header().store = store;
    (*arena)->header().epoch = epoch;
    return {.name = Keeper::memory_name, .fd = UniqueFd(::dup((*arena)->fd()))};
}

Keeper::Kept rubbish() {
    return {.name = Keeper::memory_name, .fd = UniqueFd(::memfd_create("rubbish", MFD_CLOEXEC))};
}

template <class... Kept>
std::vector<Keeper::Kept> all_of(Kept... each) {
    std::vector<Keeper::Kept> kept;
    (kept.push_back(std::move(each)), ...);
    kept.push_back({.name = "nbd0", .fd = {}});
    return kept;
}

uint32_t epoch_of_last(std::vector<Keeper::Kept> kept) {
    const auto arena = take_last_memory(kept, ours);
    EXPECT_EQ(kept.size(), 1u) << "the rest is not memory";
    return arena && *arena ? (*arena)->header().epoch.load() : 0;
}

TEST(LeftMemory, is_that_of_the_last_process_wherever_it_stands) {
    EXPECT_EQ(epoch_of_last(all_of(memory_of(ours, 3), memory_of(ours, 5), memory_of(ours, 4))), 5u);
    EXPECT_EQ(epoch_of_last(all_of(memory_of(ours, 5), memory_of(ours, 3))), 5u);
}

TEST(LeftMemory, of_another_store_comes_after_all_of_this_one) {
    EXPECT_EQ(epoch_of_last(all_of(memory_of(ours, 3), memory_of(theirs, 5))), 3u);
    EXPECT_EQ(epoch_of_last(all_of(memory_of(theirs, 5), memory_of(ours, 3))), 3u);
    EXPECT_EQ(epoch_of_last(all_of(memory_of(theirs, 5))), 5u);
}

TEST(LeftMemory, that_is_none_does_not_hide_what_is) {
    EXPECT_EQ(epoch_of_last(all_of(rubbish(), memory_of(ours, 3), rubbish())), 3u);
    std::vector<Keeper::Kept> kept = all_of(rubbish());
    EXPECT_EQ(take_last_memory(kept, ours).error().code, Errc::invalid);
}

TEST(LeftMemory, is_not_there_as_a_rule) {
    std::vector<Keeper::Kept> kept = all_of();
    const auto none = take_last_memory(kept, ours);
    EXPECT_TRUE(none && !*none);
    EXPECT_EQ(kept.size(), 1u);
}

}  // namespace
}  // namespace tarn
