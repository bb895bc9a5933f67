// A process that is killed leaves its arena; the next one takes it over, whatever was half done.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/adopted_host.hpp"

namespace tarn {
namespace {

TEST_F(AdoptedHost, what_was_written_and_not_flushed_is_there) {
    for (unsigned page = 0; page < 100; ++page) write(page, page + 1);
    adopt(kill());
    EXPECT_GE(cache_->adopted_page_count(), 100u);
    for (unsigned page = 0; page < 100; ++page) EXPECT_EQ(read(page), filled(page + 1));
    EXPECT_TRUE(loop_->run_until_done(volume_->flush()));
}

TEST_F(AdoptedHost, what_was_evicted_and_not_flushed_is_there) {
    for (unsigned page = 0; page < 3 * frame_count; ++page) write(page, page % 251 + 1);
    adopt(kill());
    for (unsigned page = 0; page < 3 * frame_count; ++page) EXPECT_EQ(read(page), filled(page % 251 + 1));
}

TEST_F(AdoptedHost, what_home_had_taken_is_durable_once_flushed) {
    for (unsigned page = 0; page < 20; ++page) write(page, page + 1);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    for (unsigned page = 0; page < 20; ++page) {
        write(page, page + 50);
        cache_->stripes().step(
            protocol::Event::about(protocol::Event::Kind::write_back, PageId::of(volume_id, page), 0));
    }
    adopt(kill());
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    kill();
    open("store", nullptr);
    for (unsigned page = 0; page < 20; ++page) EXPECT_EQ(read(page), filled(page + 50));
}

TEST_F(AdoptedHost, it_can_be_adopted_again_and_again) {
    UniqueFd memory;
    for (unsigned round = 1; round <= 4; ++round) {
        write(round, round);
        write(0, round);
        memory = kill();
        adopt(memory);
        for (unsigned page = 1; page <= round; ++page) EXPECT_EQ(read(page), filled(page));
        EXPECT_EQ(read(0), filled(round));
    }
}

TEST_F(AdoptedHost, processes_that_were_killed_as_they_started_may_lie_between) {
    write(1, 1);
    const UniqueFd memory = kill();
    for (const bool claims : {false, true, false}) {
        open_store("store", {.use_later = true});
        const std::unique_ptr<Arena> arena = map(memory);
        if (claims) EXPECT_TRUE(Adoption::claim(*arena, *store_));
        (void)kill();
    }
    open_store("store", {.use_later = true});
    std::unique_ptr<Arena> arena = map(memory);
    ASSERT_TRUE(Adoption::claim(*arena, *store_));
    ASSERT_TRUE(loop_->run_until_done(store_->begin_use(*loop_)));
    open("store", std::move(arena));
    EXPECT_EQ(read(1), filled(1));
}

// Else a store without room for them all could not be served any more.
TEST_F(AdoptedHost, pages_are_as_clean_as_they_were_after_a_process_that_was_killed_as_it_started) {
    for (unsigned page = 0; page < 100; ++page) write(page, page + 1);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    ASSERT_EQ(cache_->dirty_frame_count(), 0u);
    const UniqueFd memory = kill();
    for (int again = 0; again < 2; ++again) {
        open_store("store");
        ASSERT_TRUE(Adoption::claim(*map(memory), *store_));
        (void)kill();
    }
    adopt(memory);
    EXPECT_GE(cache_->adopted_page_count(), 100u);
    EXPECT_EQ(cache_->dirty_frame_count(), 0u);
}

// Such a program does not say which process was last in doubt: its last one may have been.
TEST_F(AdoptedHost, of_an_older_program_only_the_last_process_counts_as_in_doubt) {
    write(1, 1);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    const auto epoch = static_cast<uint32_t>(store_->home_epoch());
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        arena->header().last_in_doubt = arena->header().past_known_to = 0;
    }
    for (int again = 0; again < 2; ++again) {
        open_store("store");
        ASSERT_TRUE(Adoption::claim(*map(memory), *store_));
        EXPECT_EQ(map(memory)->header().last_in_doubt, epoch) << "the last process of the older program";
        EXPECT_EQ(map(memory)->header().last_loss, epoch);
        (void)kill();
    }
    adopt(memory);
    EXPECT_EQ(cache_->dirty_frame_count(), 0u) << "all pages were confirmed by that process";
    EXPECT_EQ(read(1), filled(1));
}

TEST_F(AdoptedHost, an_older_program_between_two_of_ours_counts_as_in_doubt) {
    const UniqueFd memory = kill();
    open_store("store");
    const auto epoch = static_cast<uint32_t>(store_->home_epoch());
    map(memory)->header().epoch = epoch;  // all that it says
    (void)kill();
    adopt(memory);
    EXPECT_EQ(map(memory)->header().last_in_doubt, epoch);
}

TEST_F(AdoptedHost, memory_of_before_another_process_used_the_store_is_refused) {
    write(1, 1);
    const UniqueFd memory = kill();
    open_store("store", {.use_later = true});
    ASSERT_TRUE(loop_->run_until_done(store_->begin_use(*loop_)));
    (void)kill();
    open_store("store", {.use_later = true});
    EXPECT_FALSE(Adoption::claim(*map(memory), *store_));
}

// As after the store was replaced by an older copy of itself.
TEST_F(AdoptedHost, memory_of_a_later_process_than_the_present_one_is_refused) {
    const UniqueFd memory = kill();
    open_store("store");
    const auto epoch = static_cast<uint32_t>(store_->home_epoch());
    for (const uint32_t later : {epoch, epoch + 1}) {
        map(memory)->header().epoch = later;
        EXPECT_FALSE(Adoption::claim(*map(memory), *store_));
    }
}

TEST_F(AdoptedHost, a_store_that_was_closed_in_order_stays_so_until_it_is_used) {
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_, true)));
    (void)kill();
    for (int i = 0; i < 2; ++i) {
        open_store("store", {.use_later = true});
        EXPECT_TRUE(store_->was_complete());
        (void)kill();
    }
    open_store("store", {.use_later = true});
    ASSERT_TRUE(loop_->run_until_done(store_->begin_use(*loop_)));
    (void)kill();
    open_store("store", {.use_later = true});
    EXPECT_FALSE(store_->was_complete());
}

// Writes that were accepted under a verifier are lost with the first process whose memory is, and not before.
TEST_F(AdoptedHost, the_verifier_stays_while_no_process_loses_anything) {
    const protocol::Verifier first = cache_->verifiers().own();
    const auto stop = [&] {
        ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_, true)));
        (void)kill();
    };
    for (int again = 0; again < 2; ++again) {
        stop();
        open("store", nullptr);
        EXPECT_EQ(cache_->verifiers().own(), first);
        adopt(kill());
        EXPECT_EQ(cache_->verifiers().own(), first);
    }
    (void)kill();
    open("store", nullptr);
    const protocol::Verifier second = cache_->verifiers().own();
    EXPECT_NE(second, first);
    adopt(kill());
    EXPECT_EQ(cache_->verifiers().own(), second);
}

TEST_F(AdoptedHost, a_trim_is_there) {
    for (unsigned page = 0; page < 8; ++page) write(page, 9);
    ASSERT_TRUE(loop_->run_until_done(volume_->zero(2 * page_size, 3 * page_size, false)));
    adopt(kill());
    for (unsigned page = 0; page < 8; ++page) EXPECT_EQ(read(page), filled(page >= 2 && page < 5 ? 0 : 9));
}

TEST_F(AdoptedHost, of_two_frames_of_one_page_the_newer_counts) {
    write(3, 1);
    write(4, 2);
    const UniqueFd memory = kill();
    {
        // As if the frame of page 4 had held page 3 before, and its record had not ended yet.
        const std::unique_ptr<Arena> arena = map(memory);
        const FrameId stale = frame_of(*arena, 4);
        FrameRecord::State state = arena->records()[stale].state();
        state.page = PageId::of(volume_id, 3).value;
        state.tenure = arena->records()[frame_of(*arena, 3)].state().tenure - 1;
        arena->records()[stale].set(state);
    }
    adopt(memory);
    EXPECT_EQ(read(3), filled(1));
    EXPECT_EQ(read(4), filled(0));
}

TEST_F(AdoptedHost, only_the_last_process_of_the_store_is_succeeded) {
    write(1, 1);
    const UniqueFd memory = kill();
    open("store", nullptr);  // without the memory
    (void)kill();
    open_store("store");
    const Result<> claimed = Adoption::claim(*map(memory), *store_);
    ASSERT_FALSE(claimed);
    EXPECT_EQ(claimed.error().where, std::string("arena: another process has used the store since"));
    store_.reset();
    loop_.reset();
    make_store("other");
    open_store("other");
    const Result<> other = Adoption::claim(*map(memory), *store_);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().where, std::string("arena: of another store"));
}

class OlderMemory : public AdoptedHost, public testing::WithParamInterface<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(All, OlderMemory,
                         testing::Values(ArenaHeader::layout_without_landing, ArenaHeader::layout_without_clients));

TEST_P(OlderMemory, is_adopted_without_what_it_lacks) {
    const uint32_t layout = GetParam();
    const UniqueFd memory = [&] {
        (void)kill();
        open_store("store");
        std::unique_ptr<Arena> arena = std::move(*Arena::create(frame_count));
        arena->header().store = store_->uuid();
        arena->header().epoch = arena->header().incarnation = static_cast<uint32_t>(store_->home_epoch());
        arena->header().last_in_doubt = arena->header().incarnation.load();
        arena->header().layout = layout;
        open("store", std::move(arena));
        write(3, 1);
        return kill();
    }();
    adopt(memory);
    EXPECT_EQ(read(3), filled(1));
    EXPECT_TRUE(cache_->pool().arena().landing().empty());
    EXPECT_TRUE(cache_->pool().arena().clients().empty());
    const std::vector<std::byte> bytes(12 * page_size, std::byte{4});
    ASSERT_TRUE(loop_->run_until_done(volume_->write(0, bytes)));
    ASSERT_TRUE(volume_->try_write(0, bytes));
    EXPECT_EQ(read(3), filled(4));
}

TEST_F(AdoptedHost, what_is_no_arena_is_refused) {
    const auto refusal = [](off_t size, auto&& fill) {
        UniqueFd memfd(::memfd_create("test", MFD_CLOEXEC));
        EXPECT_EQ(::ftruncate(memfd.get(), size), 0);
        if (size >= static_cast<off_t>(page_size)) {
            const Mapping mapping = std::move(*Mapping::create(page_size, memfd.get()));
            fill(*new (mapping.bytes().data()) ArenaHeader);
        }
        const auto adopted = Arena::adopt(std::move(memfd));
        return adopted ? std::string() : std::string(adopted.error().where);
    };
    const auto leave = [](ArenaHeader&) {};
    EXPECT_EQ(refusal(0, leave), "dram.arena: too small for an arena");
    EXPECT_EQ(refusal(1 << 20, leave), "dram.arena: of another version, or never finished");
    const auto plausible = [](ArenaHeader& header) {
        header.magic = ArenaHeader::magic_expected;
        header.layout = ArenaHeader::layout_expected;
        header.frame_size = page_size;
        header.frame_count = 1000;
    };
    EXPECT_EQ(refusal(1 << 20, plausible), "dram.arena: its size is not what its header says");
    for (const uint32_t layout : {uint32_t{0}, ArenaHeader::layout_expected + 1})
        EXPECT_EQ(refusal(1 << 20,
                          [&](ArenaHeader& header) {
                              plausible(header);
                              header.layout = layout;
                          }),
                  "dram.arena: of another version, or never finished");
    EXPECT_EQ(refusal(1 << 20,
                      [&](ArenaHeader& header) {
                          plausible(header);
                          header.frame_count = ~uint64_t{0};
                      }),
              "dram.arena: its size is not what its header says");
}

// The store may have lost what it was given: the mask of a frame names only what came after that.
TEST_F(AdoptedHost, home_bytes_that_were_on_their_way_into_the_store_are_stored_whole) {
    write(3, 1);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    write(3, 2);
    evict(3);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        const FrameId frame = home_frame_of(*arena, 3);
        ASSERT_NE(frame, no_frame);
        ASSERT_TRUE(arena->frames()[frame].home_dirty);
        arena->frames()[frame].home_mask = 1;
    }
    adopt(memory);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    (void)kill();
    open("store", nullptr);
    EXPECT_EQ(read(3), filled(2));
}

TEST_F(AdoptedHost, home_bytes_have_the_room_in_the_store_that_they_were_promised) {
    const uint64_t before = store_->space().free_bytes;
    write(3, 1);
    evict(3);
    const uint64_t promised = store_->space().free_bytes;
    ASSERT_LT(promised, before);
    adopt(kill());
    EXPECT_EQ(store_->space().free_bytes, promised);
}

TEST_F(AdoptedHost, of_two_frames_of_home_bytes_the_newer_counts) {
    for (const bool newer_comes_first : {false, true}) {
        for (const unsigned page : {3, 4}) {
            write(page, page);
            evict(page);
        }
        const UniqueFd memory = kill();
        unsigned newer_value = 0;
        {
            // As if page 3 had both frames, since the older one was not released yet.
            const std::unique_ptr<Arena> arena = map(memory);
            const FrameId third = home_frame_of(*arena, 3);
            const FrameId fourth = home_frame_of(*arena, 4);
            ASSERT_TRUE(third != no_frame && fourth != no_frame);
            Frame& first = arena->frames()[std::min(third, fourth)];
            Frame& second = arena->frames()[std::max(third, fourth)];
            newer_value = (newer_comes_first == (third < fourth)) ? 3 : 4;
            arena->frames()[fourth].page = PageId::of(volume_id, 3).value;
            second.home_tenure = first.home_tenure;
            first.home_sequence = newer_comes_first ? 8 : 7;
            second.home_sequence = newer_comes_first ? 7 : 8;
        }
        adopt(memory);
        EXPECT_EQ(read(3), filled(newer_value));
        EXPECT_EQ(read(4), filled(0));
    }
}

// What was granted in the tenure of the order that took the kept bytes away came from home, after these had got there.
TEST_F(AdoptedHost, a_frame_of_the_tenure_in_which_others_were_kept_is_newer_than_they_are) {
    write(3, 1);
    write(4, 2);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        FrameRecord& kept = arena->records()[frame_of(*arena, 3)];
        FrameRecord& held = arena->records()[frame_of(*arena, 4)];
        FrameRecord::State state = kept.state();
        const Tenure order = state.tenure + 1;
        state.role = FrameRecord::Role::kept;
        state.order = order;
        kept.set(state);
        held.set({.page = PageId::of(volume_id, 3).value, .tenure = order, .role = FrameRecord::Role::shared});
    }
    adopt(memory);
    EXPECT_EQ(read(3), filled(2));
    EXPECT_EQ(read(4), filled(0));
}

TEST_F(AdoptedHost, of_two_frames_of_kept_bytes_the_newer_counts) {
    for (const bool newer_comes_first : {false, true}) {
        write(3, 1);
        write(4, 1);
        const UniqueFd memory = kill();
        {
            const std::unique_ptr<Arena> arena = map(memory);
            const auto [first, second] = std::minmax({frame_of(*arena, 3), frame_of(*arena, 4)});
            const Tenure tenure = arena->records()[first].state().tenure;
            const auto keep = [&](FrameId frame, bool is_newer) {
                arena->records()[frame].set({.page = PageId::of(volume_id, 3).value,
                                             .tenure = tenure + is_newer,
                                             .order = tenure + 1 + is_newer,
                                             .role = FrameRecord::Role::kept});
                std::memset(bytes_of(*arena, frame), is_newer ? 6 : 5, page_size);
            };
            keep(first, newer_comes_first);
            keep(second, !newer_comes_first);
        }
        adopt(memory);
        EXPECT_EQ(read(3), filled(6)) << newer_comes_first;
    }
}

// Else each kill could cost memory, and a page that is held would be resolved for bytes that nobody needs.
TEST_F(AdoptedHost, a_frame_that_does_not_count_is_free) {
    for (const auto role : {FrameRecord::Role::exclusive, FrameRecord::Role::kept}) {
        write(3, 1);
        write(4, 2);
        const UniqueFd memory = kill();
        FrameId older = no_frame;
        {
            const std::unique_ptr<Arena> arena = map(memory);
            const FrameRecord::State newest = arena->records()[frame_of(*arena, 3)].state();
            older = frame_of(*arena, 4);
            arena->records()[older].set(
                {.page = newest.page, .tenure = newest.tenure - 1, .order = newest.tenure, .role = role});
        }
        adopt(memory);
        EXPECT_EQ(cache_->pool().frame(older).uses.load(), 0u) << static_cast<int>(role);
        EXPECT_EQ(read(3), filled(1));
        EXPECT_TRUE(volume_->try_write(3 * page_size, filled(5))) << "it is held as before";
        EXPECT_EQ(read(4), filled(0));
    }
}

// Of one tenure, home has the bytes that were written back before, and the kept ones are those of the end.
TEST_F(AdoptedHost, kept_bytes_that_were_changed_after_home_got_them_are_newer) {
    write(3, 1);
    evict(3);
    write(4, 2);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        Frame& home = arena->frames()[home_frame_of(*arena, 3)];
        home.home_sequence = 1;
        arena->records()[frame_of(*arena, 4)].set({.page = PageId::of(volume_id, 3).value,
                                                   .tenure = home.home_tenure,
                                                   .order = home.home_tenure + 1,
                                                   .sequence = 2,
                                                   .role = FrameRecord::Role::kept});
    }
    adopt(memory);
    EXPECT_EQ(read(3), filled(2));
}

// Home may not have got it.
TEST_F(AdoptedHost, what_was_being_written_back_is_written_back_again) {
    write(3, 1);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        Frame& frame = arena->frames()[frame_of(*arena, 3)];
        frame.writing = frame.dirty.exchange(0);
        ASSERT_NE(frame.writing.load(), 0u);
    }
    adopt(memory);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush()));
    kill();
    open("store", nullptr);
    EXPECT_EQ(read(3), filled(1));
}

// Who may have seen what was lost must not read on in silence.
TEST_F(AdoptedHost, a_page_that_has_lost_writes_has_lost_them_for_the_next_process_too) {
    write(3, 1);
    const UniqueFd memory = kill();
    {
        const std::unique_ptr<Arena> arena = map(memory);
        FrameRecord& record = arena->records()[frame_of(*arena, 3)];
        FrameRecord::State state = record.state();
        state.lost = 5;
        record.set(state);
    }
    adopt(memory);
    for (const uint32_t began_after : {4, 5}) {
        LossView view;
        view.await(set_of(0));
        view.began_after(0, began_after);
        PageBytes bytes{};
        EXPECT_EQ(cache_->pages().try_read(PageId::of(volume_id, 3), 0, bytes, view), began_after == 5);
    }
}

// What a process wrote who knows what; who believed it would leave out what may be lost.
TEST_F(AdoptedHost, a_past_that_cannot_be_is_not_believed) {
    const auto past_after = [this](uint32_t by, auto&& spoil) {
        const auto last = static_cast<uint32_t>(store_->home_epoch());
        const UniqueFd memory = kill();
        spoil(map(memory)->header(), last);
        adopt(memory);
        const ArenaHeader& header = cache_->pool().arena().header();
        EXPECT_EQ(header.last_in_doubt, last) << by;
        EXPECT_EQ(header.last_loss, last) << by;
    };
    past_after(1, [](ArenaHeader& header, uint32_t) { header.last_in_doubt = 0; });
    past_after(2, [](ArenaHeader& header, uint32_t last) { header.last_in_doubt = last + 1; });
    past_after(3, [](ArenaHeader& header, uint32_t last) { header.last_loss = last + 1; });
}

}  // namespace
}  // namespace tarn
