// What the cache makes of links that break and come again, and of what other hosts' write-backs leave dirty: the test
// plays the other hosts.
#include "tests/unit/cache_links.hpp"

#include "coherence/pages/page_access.hpp"
#include "frontends/volumes/attribute_page.hpp"
#include "tests/support/interleave.hpp"

namespace tarn::home_on_device {
namespace {

TEST_F(CacheLinks, what_is_written_during_a_write_back_is_asked_for_again) {
    const FrameId id = own(their_page());
    ask_for_dirty();
    ASSERT_EQ(fabric_.count(MessageKind::write_back), 1u);
    ASSERT_TRUE(write_to_sector(their_page(), 3));
    ASSERT_TRUE(take_write_back());
    EXPECT_TRUE(is_in_set_if_dirty(id));
    ask_for_dirty();
    EXPECT_EQ(fabric_.count(MessageKind::write_back), 2u);
    ASSERT_TRUE(take_write_back());
    EXPECT_EQ(cache_->dirty_frame_count(), 0u);
    ask_for_dirty();
    EXPECT_EQ(fabric_.count(MessageKind::write_back), 2u) << "nothing is dirty";
}

// At each instruction of either, the other comes between.
TEST_F(CacheLinks, a_write_beside_the_end_of_a_write_back_leaves_the_page_in_the_set_of_dirty_ones) {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer puts signals off";
#endif
    const FrameId id = own(their_page());
    const auto write = [&] { EXPECT_TRUE(write_to_sector(their_page(), 5)); };
    const auto end = [&] { EXPECT_TRUE(take_write_back()); };
    for (const bool writer_is_stepped : {true, false}) {
        const unsigned places_max = writer_is_stepped ? 300 : 100;  // from the first look at the frame on
        Interleaving interleaving;
        bool came_there = true;
        unsigned at = 0;
        for (; came_there && at < places_max && !HasFailure(); ++at) {
            write();
            ask_for_dirty();
            const Frame* const frame = &cache_->pool().frame(id);
            came_there =
                writer_is_stepped ? interleaving.run(at, frame, write, end) : interleaving.run(at, frame, end, write);
            EXPECT_TRUE(is_in_set_if_dirty(id)) << at;
            if (!came_there) writer_is_stepped ? end() : write();
            fabric_.sent.clear();
        }
        EXPECT_GT(at, 50u);
        ask_for_dirty();
        end();
        fabric_.sent.clear();
    }
}

TEST_F(CacheLinks, a_dirty_page_that_left_is_not_among_the_dirty_ones) {
    const FrameId id = own(their_page());
    EXPECT_EQ(cache_->dirty_frame_count(), 1u);
    std::vector<FrameId> none;
    (void)cache_->eviction().try_evict(id, none);
    const Message* const evict = fabric_.last(MessageKind::evict);
    ASSERT_NE(evict, nullptr);
    Message answer = from_peer(MessageKind::evicted, their_page());
    answer.request_id = evict->request_id;
    const size_t free_before = cache_->pool().free_count();
    ASSERT_TRUE(cache_->inbox().on_message(answer, nullptr));
    EXPECT_GT(cache_->pool().free_count(), free_before);
    EXPECT_EQ(cache_->dirty_frame_count(), 0u);
    EXPECT_TRUE(cache_->home_store().writer().dirty_volumes().empty());
}

// This process may be killed right after that message: the next one must not say that it has the page, which others
// have written by then.
TEST_F(CacheLinks, a_page_that_is_given_away_is_off_the_record_before_anybody_hears_of_that) {
    std::optional<std::byte> seen;
    loop_->run_until_done(read_into(seen));
    FrameId id = cache_->pages().try_pin(page(), view_);
    const auto is_on_record = [&] { return cache_->pool().record(id).state().role != FrameRecord::Role::none; };
    const auto holds = [&] { return (cache_->pool().frame(id).uses.load() & use_holder) != 0; };
    ASSERT_NE(id, no_frame);
    cache_->pages().unpin(id);
    ASSERT_TRUE(is_on_record());
    size_t heard = 0;
    fabric_.on_send = [&](const RecordingFabric::Sent& sent) {
        if (sent.message.kind != MessageKind::acknowledge && sent.message.kind != MessageKind::evict) return;
        ++heard;
        EXPECT_TRUE(holds()) << "it is released later";
        EXPECT_FALSE(is_on_record());
    };
    ASSERT_NE(own_page(), 0u);
    EXPECT_EQ(heard, 1u) << "the other host may write";
    id = own(their_page());
    ask_for_dirty();
    ASSERT_TRUE(take_write_back());
    ASSERT_TRUE(is_on_record());
    cache_->stripes().step(protocol::Event::evict_at_once(their_page()));
    EXPECT_EQ(heard, 2u) << "the page was clean, so nobody has to agree";
}

TEST_F(CacheLinks, what_was_flushed_is_not_among_the_dirty_ones) {
    ASSERT_TRUE(write(std::byte{2}));
    EXPECT_EQ(cache_->dirty_frame_count(), 1u);
    ASSERT_TRUE(loop_->run_until_done(volume_->flush_range(page_ * page_size, page_size, false)));
    EXPECT_EQ(cache_->dirty_frame_count(), 0u);
}

TEST_F(CacheLinks, home_bytes_that_were_asked_for_over_a_broken_link_go_over_no_later_one) {
    device_->hold_next_read();
    ASSERT_TRUE(hear(MessageKind::get_shared, 5));
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(device_->holds_a_read());
    cut();
    link();
    fabric_.sent.clear();
    device_->let_go();
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(device_->holds_a_read());
    EXPECT_EQ(fabric_.count(MessageKind::grant), 0u) << "the order of the old link is undone";
}

// As a_late_read_of_an_undone_order_overwrites_nothing, with no frame free for what the store reads.
TEST_F(CacheLinks, a_late_read_without_a_frame_of_its_own_overwrites_nothing) {
    std::vector<FrameId> taken;
    const size_t leave = cache_->provider().reserve_count();
    for (FrameId id = 0; (id = cache_->pool().try_take(use_holder, leave + 1)) != no_frame;) taken.push_back(id);
    device_->hold_next_read();
    Gate reads;
    std::optional<std::byte> seen;
    reads.spawn(read_into(seen));
    for (const FrameId id : taken) cache_->supply().give(id);
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(device_->holds_a_read());
    ASSERT_TRUE(hear(MessageKind::get_shared, 5));
    loop_->run_until_done(turns(*loop_));
    cut();
    link();
    const Message* const recall = fabric_.last(MessageKind::recall);
    ASSERT_NE(recall, nullptr);
    ASSERT_TRUE(hear(MessageKind::report, 0, recall->tenure));
    loop_->run_until_done(reads.close());
    ASSERT_TRUE(write(std::byte{2}));
    device_->let_go();
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(value_in_frame(), std::byte{2});
}

TEST_F(CacheLinks, the_frame_of_a_page_that_is_refused_is_free_again) {
    const size_t free_before = cache_->pool().free_count();
    Message lie = from_peer(MessageKind::grant, page());  // which is homed here
    lie.flags = protocol::flag_payload;
    lie.tenure = tenure_;
    EXPECT_FALSE(cache_->inbox().on_message(lie, cache_->inbox().lend_page(peer)));
    EXPECT_EQ(cache_->pool().free_count(), free_before);
}

TEST_F(CacheLinks, the_frame_of_a_message_is_free_once_when_the_cache_stops_in_its_midst) {
    const size_t free_before = cache_->pool().free_count();
    Message late = from_peer(MessageKind::write_back, page());  // nobody holds the page: its bytes are let go
    late.flags = protocol::flag_payload;
    late.tenure = tenure_;
    std::thread stops;
    fabric_.on_send = [&](const RecordingFabric::Sent&) {
        if (cache_->abandoned()) return;
        stops = std::thread([&] { cache_->abandon(); });
        while (!cache_->abandoned()) std::this_thread::yield();
    };
    const Result<> heard = cache_->inbox().on_message(late, cache_->inbox().lend_page(peer));
    ASSERT_TRUE(heard) << heard.error().where;
    ASSERT_TRUE(stops.joinable()) << "nothing was sent";
    stops.join();
    EXPECT_EQ(cache_->pool().free_count(), free_before);
}

TEST_F(CacheLinks, nothing_is_sent_over_a_broken_link_and_all_of_it_over_the_next) {
    cut();
    fabric_.sent.clear();
    Gate reads;
    bool done = false;
    reads.spawn(read_page(theirs(), done));
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(fabric_.sent.empty());
    link();
    EXPECT_EQ(fabric_.count(MessageKind::get_shared), 1u);
    answered_ = 0;
    grant_all(fabric_, *cache_, answered_, tenure_);
    loop_->run_until_done(reads.close());
    EXPECT_TRUE(done);
}

// While the stripes hear of the link one after the other, somebody wants a page in one that has not.
TEST_F(CacheLinks, a_stripe_that_has_not_heard_of_a_link_sends_nothing_over_it) {
    // In different stripes, each with a neighbour in its own.
    const PageId pages[] = {their_page(), their_page(16), their_page(32), their_page(48)};
    for (const PageId page : pages) (void)own(page);
    cut();
    fabric_.sent.clear();
    Gate reads;
    std::array<bool, std::size(pages)> done{};
    bool began = false;
    fabric_.on_send = [&](const RecordingFabric::Sent& sent) {
        if (std::exchange(began, true)) return;
        for (size_t i = 0; i < std::size(pages); ++i)
            if (pages[i] != sent.message.page) reads.spawn(read_page(pages[i].number() + 1, done[i]));
    };
    link();
    fabric_.on_send = nullptr;
    EXPECT_EQ(fabric_.count(MessageKind::hello), std::size(pages));
    EXPECT_EQ(fabric_.count(MessageKind::get_shared), std::size(pages) - 1) << "each when its stripe has, and once";
    answered_ = 0;
    grant_all(fabric_, *cache_, answered_, tenure_);
    loop_->run_until_done(turns(*loop_));
    if (std::ranges::count(done, true) != std::ssize(pages) - 1) cache_->abandon();
    loop_->run_until_done(reads.close());
    EXPECT_EQ(std::ranges::count(done, true), std::ssize(pages) - 1);
}

TEST_F(CacheLinks, another_process_of_a_home_whose_store_failed_is_asked_again) {
    Gate writes;
    Result<> written;
    writes.spawn([](CachedVolume& volume, uint64_t number, Result<>& into) -> Task<> {
        const std::vector<std::byte> bytes(page_size, std::byte{3});
        into = co_await volume.write(number * page_size, bytes);
    }(*volume_, theirs(), written));
    const Message* const asked = fabric_.last(MessageKind::get_exclusive_no_read);
    ASSERT_NE(asked, nullptr);
    Message refusal = from_peer(MessageKind::no_space, their_page());
    refusal.request_id = asked->request_id;
    refusal.flags = protocol::flag_lost;
    ASSERT_TRUE(cache_->inbox().on_message(refusal, nullptr));
    loop_->run_until_done(writes.close());
    EXPECT_FALSE(written);
    EXPECT_TRUE(cache_->membership().refuses_writes_of(their_page()));
    cut();
    link();
    EXPECT_TRUE(cache_->membership().refuses_writes_of(their_page())) << "it is the same process";
    cut();
    peer_process_ = {.incarnation = 2, .epoch = 2};
    link();
    EXPECT_FALSE(cache_->membership().refuses_writes_of(their_page()));
}

// If it is another one at the flush, the write may be lost.
TEST_F(CacheLinks, a_write_that_waited_knows_the_verifier_of_its_home) {
    cache_->verifiers().hear(peer, protocol::verifier_of(peer_process_.incarnation, 0));
    const std::vector<std::byte> bytes(page_size, std::byte{4});
    PageRequest request(cache_->accesses(), *loop_, view_);
    request.add(PageAccess::Kind::write, volume_id, theirs() * page_size, page_size, nullptr, bytes.data());
    Result<> written = fail(Errc::invalid);
    Gate writes;
    writes.spawn([](PageRequest& waiting, Result<>& into) -> Task<> { into = co_await waiting; }(request, written));
    grant_all(fabric_, *cache_, answered_, tenure_);
    loop_->run_until_done(writes.close());
    EXPECT_TRUE(written);
    EXPECT_NE(request.began(peer), 0U);
    EXPECT_EQ(request.began(peer), cache_->verifiers().present(peer));
}

TEST_F(CacheLinks, a_home_is_heard_under_the_process_since_which_it_has_lost_nothing) {
    cut();
    peer_process_ = {.incarnation = 9, .epoch = 9, .intact_since = 8};
    link();
    Message message = from_peer(MessageKind::grant, PageId::of(volume_id, 0));
    message.loss_generation = 3;
    ASSERT_TRUE(cache_->inbox().on_message(message, nullptr));
    EXPECT_EQ(cache_->verifiers().present(peer), protocol::verifier_of(8, 3));
}

TEST_F(CacheLinks, an_answer_that_comes_late_takes_no_verifier_back) {
    cache_->flusher().heard(peer, protocol::verifier_of(1, 5));
    cache_->flusher().heard(peer, protocol::verifier_of(1, 4));
    EXPECT_EQ(cache_->verifiers().present(peer), protocol::verifier_of(1, 5));
    cache_->flusher().heard(peer, protocol::verifier_of(2, 0));
    EXPECT_EQ(cache_->verifiers().present(peer), protocol::verifier_of(2, 0));
}

TEST_F(CacheLinks, a_mark_stays_while_somebody_is_inside_the_page) {
    ASSERT_TRUE(write(std::byte{2}));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush_range(page_ * page_size, page_size, false)));
    ASSERT_TRUE(store_->is_marked(page()));
    const FrameId id = cache_->pages().try_pin(page(), view_);
    ASSERT_NE(id, no_frame);
    for (int i = 0; i < 2; ++i) loop_->run_until_done(sweep_all());
    EXPECT_TRUE(store_->is_marked(page()));
    cache_->pages().unpin(id);
    for (int i = 0; i < 2; ++i) loop_->run_until_done(sweep_all());
    EXPECT_FALSE(store_->is_marked(page()));
}

TEST_F(CacheLinks, the_end_of_a_volume_waits_for_what_is_on_its_way_into_the_store) {
    ASSERT_TRUE(write(std::byte{2}));
    Gate tasks;
    bool erased = false;
    Result<> flushed;
    device_->hold_next_write();
    tasks.spawn([](CachedVolume& volume, uint64_t number, Result<>& into) -> Task<> {
        into = co_await volume.flush_range(number * page_size, page_size, false);
    }(*volume_, page_, flushed));
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(device_->holds_a_write());
    tasks.spawn([](Cache& cache, bool& done) -> Task<> {
        (void)co_await cache.volume_end().discard(volume_id);
        done = (co_await cache.volume_end().erase(volume_id)).has_value();
    }(*cache_, erased));
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(erased);
    device_->let_write_go();
    loop_->run_until_done(turns(*loop_));
    cache_->abandon();
    loop_->run_until_done(tasks.close());
}

TEST_F(CacheLinks, the_space_of_a_volume_is_free_at_its_end) {
    ASSERT_TRUE(write(std::byte{2}));
    ASSERT_TRUE(loop_->run_until_done(volume_->flush_range(page_ * page_size, page_size, false)));
    for (int i = 0; i < 2; ++i) loop_->run_until_done(sweep_all());
    ASSERT_FALSE(store_->is_marked(page()));  // clearing a mark would flush
    ASSERT_GT(store_->allocated_bytes(volume_id), 0U);
    ASSERT_TRUE(loop_->run_until_done(cache_->volume_end().discard(volume_id)));
    ASSERT_TRUE(loop_->run_until_done(cache_->volume_end().erase(volume_id)));
    EXPECT_EQ(store_->allocated_bytes(volume_id), 0U);
}

TEST_F(CacheLinks, what_was_seen_of_a_home_stays_while_it_is_away) {
    const FrameId id = own(their_page());
    cut();
    std::vector<FrameId> none;
    EXPECT_FALSE(cache_->eviction().try_evict(id, none));
    EXPECT_TRUE(cache_->pages().holds(their_page()));
}

TEST_F(CacheLinks, what_a_process_said_of_its_losses_counts_for_it_alone) {
    const protocol::Verifier verifier = protocol::verifier_of(peer_process_.first_intact(), 1);
    fabric_.on_call = [&](HostId, CallKind, const std::string&) {
        return [](protocol::Verifier answer) -> Task<Result<std::string>> { co_return pack(answer); }(verifier);
    };
    const auto counts_from_now = [&] {
        const CachedVolume volume(*volumes_, volume_id);
        return !contains(std::static_pointer_cast<ClientSession>(volume.session())->session.losses.unheard(), peer);
    };
    loop_->run_until_done([](Flusher& flusher) -> Task<bool> {
        co_await flusher.hear_from_homes();
        co_return true;
    }(cache_->flusher()));
    EXPECT_TRUE(counts_from_now());
    cut();
    peer_process_ = {.incarnation = 9, .epoch = 9, .intact_since = peer_process_.first_intact()};
    link();
    EXPECT_FALSE(counts_from_now()) << "it may be about to find a loss";
}

TEST_F(CacheLinks, an_answer_of_the_process_before_settles_nothing) {
    const protocol::Verifier verifier = protocol::verifier_of(peer_process_.first_intact(), 1);
    unsigned asked = 0;
    fabric_.on_call = [&](HostId, CallKind, const std::string&) -> Task<Result<std::string>> {
        if (asked++ == 0) {
            cut();
            peer_process_ = {.incarnation = 9, .epoch = 9, .intact_since = peer_process_.first_intact()};
            link();
            return [](protocol::Verifier answer) -> Task<Result<std::string>> { co_return pack(answer); }(verifier);
        }
        return []() -> Task<Result<std::string>> { co_return fail(Errc::unavailable); }();
    };
    loop_->run_until_done([](Flusher& flusher) -> Task<bool> {
        co_await flusher.hear_from_homes();
        co_return true;
    }(cache_->flusher()));
    const CachedVolume volume(*volumes_, volume_id);
    EXPECT_TRUE(contains(std::static_pointer_cast<ClientSession>(volume.session())->session.losses.unheard(), peer));
}

// The process that had declared it dead ended before its stripes had heard of it.
TEST_F(CacheLinks, who_was_declared_dead_at_last_may_have_had_something) {
    cut();
    ASSERT_TRUE(loop_->run_until_done(store_->set_forgotten(*loop_, peer, peer_process_.incarnation + 1)));
    const uint64_t generation = store_->loss_generation();
    (void)restart();
    EXPECT_GT(store_->loss_generation(), generation) << "flushes of who wrote before fail";
}

TEST_F(CacheLinks, a_flush_that_begins_after_its_home_was_declared_dead_fails) {
    (void)own(their_page());
    ASSERT_NE(cache_->verifiers().present(peer), 0U);
    const Result<> flushed = flush_of_dead_peer();
    ASSERT_FALSE(flushed);
    EXPECT_EQ(flushed.error().code, Errc::io);
}

TEST_F(CacheLinks, a_flush_of_a_home_that_was_never_heard_fails_once_that_is_declared_dead) {
    ASSERT_EQ(cache_->verifiers().present(peer), 0U);
    const Result<> flushed = flush_of_dead_peer();
    ASSERT_FALSE(flushed);
    EXPECT_EQ(flushed.error().code, Errc::io);
}

// Who asks what a volume is must not wait for a silent home.
TEST_F(CacheLinks, a_page_that_describes_a_volume_leaves_only_if_any_may) {
    VolumeId volume = volume_id;
    while (cache_->home_of(attribute_page_of(volume)) != peer) ++volume;
    CachedVolume other(*volumes_, volume, OnLoss::revert);
    Gate reads;
    bool done = false;
    reads.spawn([](CachedVolume& of, bool& is_done) -> Task<> { is_done = (co_await of.attributes()).has_value(); }(
                                                        other, done));
    grant_all(fabric_, *cache_, answered_, tenure_);
    loop_->run_until_done(reads.close());
    ASSERT_TRUE(done);
    const FrameId id = cache_->pages().try_pin(attribute_page_of(volume), view_);
    ASSERT_NE(id, no_frame);
    cache_->pages().unpin(id);
    EXPECT_FALSE(cache_->eviction().drop_clean(id, false));
    EXPECT_TRUE(cache_->pages().holds(attribute_page_of(volume)));
    EXPECT_TRUE(cache_->eviction().drop_clean(id, true));
    EXPECT_FALSE(cache_->pages().holds(attribute_page_of(volume)));
}

// Nobody else knows that it is unanswered: the home may have taken the bytes, or not.
TEST_F(CacheLinks, the_next_process_says_of_which_evictions_it_has_no_answer) {
    (void)own(their_page());
    cache_->stripes().step(protocol::Event::about(protocol::Event::Kind::evict, their_page()));
    const Message* const evict = fabric_.last(MessageKind::evict);
    ASSERT_NE(evict, nullptr);
    const protocol::RequestId request = evict->request_id;
    const Message* const hello = restart();
    ASSERT_NE(hello, nullptr);
    EXPECT_TRUE(hello->has(protocol::flag_evicting));
    EXPECT_EQ(hello->request_id, request);
}

TEST_F(CacheLinks, the_next_process_says_of_which_pages_a_home_may_lack_the_bytes) {
    bool read = false;
    Gate reads;
    reads.spawn(read_page(theirs(), read));
    grant_all(fabric_, *cache_, answered_, tenure_);
    loop_->run_until_done(reads.close());
    ASSERT_TRUE(read);
    cut();
    peer_process_ = {.incarnation = 2, .epoch = 2};  // without the memory of the one before
    link();
    const Message* const hello = restart();
    ASSERT_NE(hello, nullptr);
    EXPECT_TRUE(hello->has(protocol::flag_shared));
    EXPECT_TRUE(hello->has(protocol::flag_anchor));
}

// Its home may need them, and who has the page by now may write it.
TEST_F(CacheLinks, the_next_process_keeps_what_an_order_took_away) {
    (void)own(their_page());
    Message move = from_peer(MessageKind::move, their_page());
    move.flags = protocol::flag_bytes;
    move.tenure = tenure_ + 1;
    move.host = peer;
    move.request_id = 8;
    ASSERT_TRUE(cache_->inbox().on_message(move, nullptr));
    // Who has just written it keeps it for a moment.
    while (!fabric_.last(MessageKind::home_copy)) loop_->run_until_done(turns(*loop_));
    const Message* const hello = restart();
    ASSERT_NE(hello, nullptr);
    EXPECT_TRUE(hello->has(protocol::flag_bytes));
    EXPECT_EQ(hello->hosts, move.tenure);
    EXPECT_FALSE(hello->has(protocol::flag_exclusive));
}

// The process may be killed as soon as it is on record that home lacks them.
TEST_F(CacheLinks, all_pages_that_another_process_of_home_lacks_are_dirty_before_it_hears_of_any) {
    const std::array pages{their_page(), their_page(1)};  // of one stripe
    Gate reads;
    std::array<bool, 2> read{};
    for (size_t i = 0; i < pages.size(); ++i) reads.spawn(read_page(pages[i].number(), read[i]));
    grant_all(fabric_, *cache_, answered_, tenure_);
    loop_->run_until_done(reads.close());
    ASSERT_TRUE(read[0] && read[1]);
    ASSERT_EQ(cache_->dirty_frame_count(), 0u);
    cut();
    peer_process_ = {.incarnation = 2, .epoch = 2};
    size_t hellos = 0;
    fabric_.on_send = [&](const RecordingFabric::Sent& sent) {
        if (sent.message.kind != MessageKind::hello) return;
        ++hellos;
        EXPECT_EQ(cache_->dirty_frame_count(), pages.size());
    };
    link();
    fabric_.on_send = nullptr;
    EXPECT_EQ(hellos, pages.size());
}

}  // namespace
}  // namespace tarn::home_on_device
