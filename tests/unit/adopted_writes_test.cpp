// Writes that a kill cut short: the next process finishes them, their requests go on, and none is made twice.
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "tests/support/interleave.hpp"
#include "tests/unit/adopted_host.hpp"

namespace tarn {
namespace {

TEST_F(AdoptedHost, a_write_that_was_cut_short_is_finished) {
    write(3, 1);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        const FrameId frame = frame_of(*arena, 3);
        ASSERT_NE(frame, no_frame);
        WriteStage& stage = arena->stages()[5];
        std::memset(stage.bytes, 2, 1000);
        stage.frame = frame;
        stage.page = PageId::of(volume_id, 3).value;
        stage.offset = 100;
        stage.size = 1000;
        stage.receipt = 0x700000002;
        stage.taken = true;
        stage.pending = WriteStage::Pending::bytes;
        std::memset(bytes_of(*arena, frame) + 100, 2, 300);  // so far it came
        arena->frames()[frame].dirty = 0;
    }
    adopt(memory);
    PageBytes expected = filled(1);
    std::memset(expected.data() + 100, 2, 1000);
    EXPECT_EQ(read(3), expected);
    EXPECT_EQ(cache_->pool().frame(frame_of(cache_->pool().arena(), 3)).dirty.load(), 0b111);
    EXPECT_EQ(cache_->adopted_receipts().size(), 1u) << "its request must not write the page again";
    EXPECT_EQ(cache_->adopted_receipts()[0], 0x700000002u);
}

TEST_F(AdoptedHost, a_write_that_was_cut_short_is_finished_from_where_it_landed) {
    write(3, 1);
    write(4, 1);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        std::ranges::fill(arena->landing(), std::byte{2});
        ASSERT_EQ(arena->landing().size(), landing_bytes);
        const auto stage = [&](size_t index, uint64_t page, uint64_t landed_at, uint32_t size) {
            WriteStage& stage = arena->stages()[index];
            std::memset(stage.bytes, 9, page_size);
            stage.frame = frame_of(*arena, page);
            stage.page = PageId::of(volume_id, page).value;
            stage.offset = 100;
            stage.size = size;
            stage.landed_at = landed_at;
            stage.receipt = page;
            stage.pending = WriteStage::Pending::landed;
        };
        stage(5, 3, landing_bytes - 1000, 1000);
        stage(6, 4, landing_bytes - 1000, 1001);
        stage(7, 4, landing_bytes + 1, 0);
        stage(8, 4, ~uint64_t{0}, 1);
    }
    adopt(memory);
    PageBytes expected = filled(1);
    std::memset(expected.data() + 100, 2, 1000);
    EXPECT_EQ(read(3), expected);
    EXPECT_EQ(read(4), filled(1)) << "there is no such memory";
    ASSERT_EQ(cache_->adopted_receipts().size(), 1u);
    EXPECT_EQ(cache_->adopted_receipts()[0], 3u);
}

// The stage of a frame that is not on record lasts longer than the call.
TEST_F(AdoptedHost, what_has_landed_is_copied_for_a_frame_that_is_not_on_record) {
    const auto memory = Mapping::create(page_size);
    ASSERT_TRUE(memory);
    auto& receipts = *reinterpret_cast<WriteReceipts*>(memory->bytes().data());
    receipts.begin(7);
    Arena& arena = cache_->pool().arena();
    const FrameId blank = cache_->pool().try_take(use_holder, 0);
    PageReceipt receipt(&receipts, 0);
    std::ranges::fill(arena.landing(), std::byte{2});
    cache_->pages().write_frame(cache_->pool().frame(blank), 0, arena.landing().first(page_size), &receipt);
    std::ranges::fill(arena.landing(), std::byte{3});
    ASSERT_TRUE(receipt.is_awaited());
    const auto stage =
        std::ranges::find_if(arena.stages(), [&](const WriteStage& each) { return each.frame == blank; });
    ASSERT_NE(stage, arena.stages().end());
    EXPECT_EQ(stage->pending, WriteStage::Pending::bytes);
    EXPECT_TRUE(std::ranges::equal(stage->bytes, filled(2)));
    receipt.end_stage();
    cache_->pages().dirty_frames().remove(blank);
    cache_->pool().release(blank, use_holder);
}

// A copy of the memory as it is now.
UniqueFd copy_of(const Arena& arena) {
    UniqueFd copy(::memfd_create("copy", MFD_CLOEXEC));
    struct stat status{};
    EXPECT_EQ(::fstat(arena.fd(), &status), 0);
    EXPECT_EQ(::ftruncate(copy.get(), status.st_size), 0);
    off_t at = 0;
    while (at < status.st_size && ::sendfile(copy.get(), arena.fd(), &at, static_cast<size_t>(status.st_size)) > 0) {
    }
    EXPECT_EQ(at, status.st_size);
    return copy;
}

TEST_F(AdoptedHost, whoever_is_killed_within_a_write_of_many_pages_leaves_each_page_before_it_or_after_it) {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer puts signals off";
#elif __has_feature(address_sanitizer)
    GTEST_SKIP() << "with AddressSanitizer's checks there are too many instructions to step";
#endif
    constexpr size_t page_count = 10;  // the first and the last in part
    constexpr size_t offset = 1000;
    constexpr unsigned step = 397;
    constexpr unsigned places_max = 100'000;
    const std::vector<std::byte> elsewhere((page_count - 1) * page_size, std::byte{2});
    Interleaving interleaving;
    const Arena& arena = cache_->pool().arena();
    std::ranges::fill(arena.landing(), std::byte{2});
    std::array<FrameId, page_count> frames{};
    size_t before = 0;
    size_t under_way = 0;
    size_t after = 0;
    size_t landed = 0;
    // What the next process would make of it.
    const auto look = [&] {
        const Result<std::unique_ptr<Arena>> next = Arena::adopt(copy_of(arena));
        ASSERT_TRUE(next);
        for (size_t i = 0; i < page_count; ++i) {
            const std::span page((*next)->bytes().data() + size_t{frames[i]} * page_size, page_size);
            const size_t begin = i == 0 ? offset : 0;
            const size_t end = i == page_count - 1 ? offset : page_size;
            const auto stage = std::ranges::find_if((*next)->stages(), [&](const WriteStage& each) {
                return each.pending != WriteStage::Pending::nothing && each.frame == frames[i];
            });
            const bool is_finished = stage != (*next)->stages().end();
            if (is_finished) {
                EXPECT_EQ(stage->page, PageId::of(volume_id, i).value);
                EXPECT_EQ(stage->offset, begin);
                EXPECT_EQ(stage->size, end - begin);
                const bool has_landed = stage->pending == WriteStage::Pending::landed;
                landed += has_landed;
                std::memcpy(page.data() + stage->offset,
                            has_landed ? (*next)->landing().data() + stage->landed_at : stage->bytes, stage->size);
            }
            const auto is = [&](size_t from, size_t to, int value) {
                return std::all_of(page.begin() + from, page.begin() + to,
                                   [&](std::byte byte) { return byte == std::byte(value); });
            };
            EXPECT_TRUE(is(0, begin, 1) && is(end, page_size, 1));
            const bool is_new = is(begin, end, 2);
            EXPECT_TRUE(is_new || is(begin, end, 1));
            EXPECT_TRUE(!is_new || is_finished || (*next)->frames()[frames[i]].dirty != 0);
            ++(!is_new ? before : is_finished ? under_way : after);
        }
    };
    bool came_there = true;
    for (unsigned at = 0; came_there && at < places_max && !HasFailure(); at += step) {
        for (size_t i = 0; i < page_count; ++i) {
            write(i, 1);
            frames[i] = frame_of(arena, i);
            cache_->pool().frame(frames[i]).dirty = 0;  // as after a flush
        }
        const std::span<const std::byte> bytes =
            at % 2 == 0 ? std::span(elsewhere) : arena.landing().first(elsewhere.size());
        bool written = false;
        came_there = interleaving.run(
            at, &cache_->pool().frame(frames[0]), [&] { written = volume_->try_write(offset, bytes); }, look);
        EXPECT_TRUE(written);
    }
    EXPECT_FALSE(came_there) << "there is more to try";
    // How many instructions a copy takes depends on the CPU.
    EXPECT_GT(before, 20u);
    EXPECT_GT(under_way, 5u);
    EXPECT_GT(after, 20u);
    EXPECT_TRUE(landed > 0 && landed < under_way) << landed << " of " << under_way;
}

TEST_F(AdoptedHost, a_request_has_a_receipt_for_each_page_that_it_has_changed) {
    const auto memory = Mapping::create(page_size);
    ASSERT_TRUE(memory);
    auto& receipts = *reinterpret_cast<WriteReceipts*>(memory->bytes().data());
    receipts.begin(7);
    const std::vector<std::byte> bytes(4 * page_size, std::byte{5});
    EXPECT_FALSE(receipts.has(0));
    ASSERT_TRUE(loop_->run_until_done(volume_->write(10 * page_size, bytes, &receipts)));
    for (unsigned page = 0; page < 4; ++page) EXPECT_TRUE(receipts.has(page)) << page;
    EXPECT_FALSE(receipts.has(4));
    for (const WriteStage& stage : cache_->pool().arena().stages()) {
        EXPECT_EQ(stage.pending.load(), WriteStage::Pending::nothing);
        EXPECT_FALSE(stage.taken.load());
    }

    // Somebody else writes one of them, and who goes on with the request leaves that as it is.
    write(11, 6);
    receipts.begin(7);
    receipts.add(1);
    receipts.add(2);
    const std::vector<std::byte> again(4 * page_size, std::byte{7});
    ASSERT_TRUE(loop_->run_until_done(volume_->write(10 * page_size, again, &receipts)));
    EXPECT_EQ(read(10), filled(7));
    EXPECT_EQ(read(11), filled(6));
    EXPECT_EQ(read(12), filled(5));
    EXPECT_EQ(read(13), filled(7));
    receipts.begin(7);
    ASSERT_TRUE(volume_->try_write(11 * page_size + 5, std::span(again).first(100), &receipts));
    EXPECT_TRUE(receipts.has(0));
    EXPECT_FALSE(receipts.has(1));
    receipts.begin(7);
    ASSERT_TRUE(volume_->try_write(10 * page_size, again, &receipts));
    EXPECT_TRUE(receipts.has(3));
}

// As of a block device of the kernel, which does not notice that the process was killed.
TEST_F(AdoptedHost, a_session_that_outlives_the_process_remembers_what_it_has_to_fear) {
    const auto memory = Mapping::create(page_size);
    ASSERT_TRUE(memory);
    auto& record = *reinterpret_cast<SessionRecord*>(memory->bytes().data());
    const auto go_on = [&] {
        return std::make_unique<CachedVolume>(
            *volumes_, std::make_shared<ClientSession>(
                           *cache_, volume_id, std::shared_ptr<SessionRecord>(std::shared_ptr<void>(), &record)));
    };
    const auto write = [&](CachedVolume& volume, unsigned page) {
        const std::vector<std::byte> bytes(page_size, std::byte{3});
        ASSERT_TRUE(loop_->run_until_done(volume.write(page * page_size, bytes)));
    };
    auto volume = go_on();
    write(*volume, 7);
    EXPECT_EQ(record.noted[0].load(), cache_->verifiers().own());
    EXPECT_EQ(record.pages_end.load(), 8u);
    EXPECT_TRUE(loop_->run_until_done(volume->flush()));
    EXPECT_EQ(record.noted[0].load(), 0u);
    write(*volume, 8);
    volume.reset();

    // With the memory nothing is lost.
    adopt(kill());
    volume = go_on();
    EXPECT_TRUE(loop_->run_until_done(volume->flush()));
    EXPECT_EQ(record.noted[0].load(), 0u);
    write(*volume, 9);
    volume.reset();

    // Without it the last write is.
    (void)kill();
    open("store", nullptr);
    volume = go_on();
    for (int i = 0; i < 2; ++i) {
        const Result<> flushed = loop_->run_until_done(volume->flush());
        ASSERT_FALSE(flushed);
        EXPECT_EQ(flushed.error().code, Errc::io);
    }
    volume.reset();
    adopt(kill());
    volume = go_on();
    EXPECT_FALSE(loop_->run_until_done(volume->flush())) << "for good";
    volume.reset();
}

// Between the change of a page and the end of its request the process is killed, and then its home loses the page.
TEST_F(AdoptedHost, a_request_that_goes_on_remembers_the_homes_of_pages_that_it_had_changed) {
    const auto memory = Mapping::create(page_size);
    ASSERT_TRUE(memory);
    auto& record = *reinterpret_cast<SessionRecord*>(memory->bytes().data());
    auto& receipts = *reinterpret_cast<WriteReceipts*>(memory->bytes().data() + page_size / 2);
    static_assert(sizeof(SessionRecord) <= page_size / 2 && sizeof(WriteReceipts) <= page_size / 2);
    const std::vector<std::byte> before(memory->bytes().begin(), memory->bytes().begin() + page_size / 2);
    const std::vector<std::byte> bytes(2 * page_size, std::byte{3});
    const auto go_on = [&] {
        return std::make_unique<CachedVolume>(
            *volumes_, std::make_shared<ClientSession>(
                           *cache_, volume_id, std::shared_ptr<SessionRecord>(std::shared_ptr<void>(), &record)));
    };
    for (const bool is_hot : {false, true}) {
        std::ranges::copy(before, memory->bytes().begin());
        receipts.begin(7);
        auto volume = go_on();
        if (is_hot) {
            ASSERT_TRUE(loop_->run_until_done(volume->write(7 * page_size, bytes)));
            ASSERT_TRUE(loop_->run_until_done(volume->flush()));
            ASSERT_TRUE(volume->try_write(7 * page_size, bytes, &receipts));
        } else {
            ASSERT_TRUE(loop_->run_until_done(volume->write(7 * page_size, bytes, &receipts)));
        }
        EXPECT_EQ(receipts.began(0), cache_->verifiers().own());
        EXPECT_EQ(receipts.began(1), 0u);
        volume.reset();
        (void)kill();
        open("store", nullptr);
        record.noted[0] = 0;  // the record did not come to that
        volume = go_on();
        ASSERT_TRUE(loop_->run_until_done(volume->write(7 * page_size, bytes, &receipts)));
        const Result<> flushed = loop_->run_until_done(volume->flush());
        ASSERT_FALSE(flushed);
        EXPECT_EQ(flushed.error().code, Errc::io);
        receipts.begin(7);
        EXPECT_EQ(receipts.began(0), 0u);
    }
}

TEST_F(AdoptedHost, a_trim_goes_on_where_it_was_cut_off) {
    constexpr unsigned pages = 800;  // more than a window
    const auto memory = Mapping::create(page_size);
    ASSERT_TRUE(memory);
    auto& receipts = *reinterpret_cast<WriteReceipts*>(memory->bytes().data());
    for (const unsigned page : {0u, 255u, 256u, 700u}) write(page, 9);
    receipts.begin(7);
    ASSERT_TRUE(loop_->run_until_done(volume_->zero(0, pages * page_size, true, &receipts)));
    for (const unsigned page : {0u, 255u, 256u, 700u}) EXPECT_EQ(read(page), filled(0));
    EXPECT_GT(receipts.window(), 0u);
    EXPECT_TRUE(receipts.has(0));
    EXPECT_TRUE(receipts.has(pages - 1));
    EXPECT_FALSE(receipts.has(pages));

    for (const unsigned page : {0u, 255u, 256u, 700u}) write(page, 8);
    for (const bool keep_space : {false, true}) {
        receipts.begin(7);
        receipts.move_window(256);
        receipts.add(256);
        ASSERT_TRUE(loop_->run_until_done(volume_->zero(0, pages * page_size, keep_space, &receipts)));
        for (const unsigned page : {0u, 255u, 256u}) EXPECT_EQ(read(page), filled(8));
        EXPECT_EQ(read(700), filled(0));
        write(700, 8);
    }
}

TEST_F(AdoptedHost, a_stage_that_names_nothing_that_is_held_is_ignored) {
    write(3, 1);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        const FrameId frame = frame_of(*arena, 3);
        for (const FrameId named : {frame, FrameId{frame_count + 7}, no_frame}) {
            WriteStage& stage = arena->stages()[named % Arena::stage_count];
            stage.frame = named;
            stage.page = PageId::of(volume_id, 4).value;
            stage.size = named == frame ? 10 : 5000;
            stage.receipt = 0x700000002;
            stage.pending = WriteStage::Pending::zeros;
        }
    }
    adopt(memory);
    EXPECT_EQ(read(3), filled(1));
    EXPECT_TRUE(cache_->adopted_receipts().empty());
}

TEST_F(AdoptedHost, a_trim_of_a_part_that_was_cut_short_leaves_the_rest_of_its_page) {
    write(3, 1);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        WriteStage& stage = arena->stages()[5];
        stage.frame = frame_of(*arena, 3);
        stage.page = PageId::of(volume_id, 3).value;
        stage.size = sector_size;
        stage.pending = WriteStage::Pending::zeros;
    }
    adopt(memory);
    PageBytes expected = filled(1);
    std::memset(expected.data(), 0, sector_size);
    EXPECT_EQ(read(3), expected);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    kill();
    open("store", nullptr);
    EXPECT_EQ(read(3), expected) << "the store has not freed it as a page of zeros";
}

// A page that others may read has no write under way: such a stage is of another time.
TEST_F(AdoptedHost, a_stage_of_a_page_that_may_only_be_read_is_ignored) {
    write(3, 1);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        const FrameId frame = frame_of(*arena, 3);
        FrameRecord::State state = arena->records()[frame].state();
        state.role = FrameRecord::Role::shared;
        state.anchor_since = state.tenure;
        arena->records()[frame].set(state);
        WriteStage& stage = arena->stages()[5];
        stage.frame = frame;
        stage.page = PageId::of(volume_id, 3).value;
        stage.size = 10;
        stage.receipt = 0x700000002;
        stage.pending = WriteStage::Pending::zeros;
    }
    adopt(memory);
    EXPECT_EQ(read(3), filled(1));
    EXPECT_TRUE(cache_->adopted_receipts().empty());
}

TEST_F(AdoptedHost, a_write_that_was_finished_is_not_finished_again_over_later_ones) {
    write(3, 1);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        // Not only the one that the next write uses.
        for (const size_t index : {5, 6}) {
            WriteStage& stage = arena->stages()[index];
            stage.frame = frame_of(*arena, 3);
            stage.page = PageId::of(volume_id, 3).value;
            stage.size = page_size;
            stage.pending = WriteStage::Pending::zeros;
        }
    }
    adopt(memory);
    ASSERT_EQ(read(3), filled(0));
    write(3, 2);
    adopt(kill());
    EXPECT_EQ(read(3), filled(2));
}

// Else a write would wait for ever for one of them.
TEST_F(AdoptedHost, stages_that_threads_of_the_process_before_had_taken_are_free) {
    const UniqueFd memory = kill();
    for (WriteStage& stage : map(memory)->stages()) stage.taken = true;
    adopt(memory);
    for (const WriteStage& stage : cache_->pool().arena().stages()) ASSERT_FALSE(stage.taken.load());
    write(3, 1);
    EXPECT_EQ(read(3), filled(1));
}

}  // namespace
}  // namespace tarn
