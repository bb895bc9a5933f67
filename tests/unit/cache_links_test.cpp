// What the cache makes of links that break and come again, and of what other hosts' write-backs leave dirty: the test
// plays the other hosts.
#include <cstdio>

#include "coherence/pages/page_access.hpp"
#include "tests/support/interleave.hpp"
#include "tests/unit/home_on_device.hpp"
#include "utils/interrupt.hpp"

namespace tarn::home_on_device {
namespace {

class CacheLinks : public HomeOnDevice {
  protected:
    CacheLinks() { answered_ = fabric_.sent.size(); }
    ~CacheLinks() override { fabric_.on_send = nullptr; }

    uint64_t theirs() const { return page_ + cache_->membership().ranges().pages_per_range(); }
    PageId their_page(uint64_t more = 0) const { return PageId::of(volume_id, theirs() + more); }
    // A page homed at the other host becomes ours, and dirty.
    FrameId own(PageId page) {
        size_t written = 0;
        Gate writes;
        writes.spawn(write_pages(*volume_, page.number(), 1, written));
        grant_all(fabric_, *cache_, answered_, tenure_);
        loop_->run_until_done(writes.close());
        EXPECT_EQ(written, 1u);
        const FrameId id = cache_->pages().try_pin(page, view_);
        EXPECT_NE(id, no_frame);
        if (id != no_frame) cache_->pages().unpin(id);
        return id;
    }
    bool write_to_sector(PageId page, unsigned sector) {
        const std::vector<std::byte> bytes(8, std::byte{4});
        return cache_->pages().try_write(page, sector * sector_size, bytes, view_);
    }
    Task<> read_page(uint64_t number, bool& done) {
        std::vector<std::byte> bytes(page_size);
        done = (co_await volume_->read(number * page_size, bytes)).has_value();
    }
    Task<> sweep_all() { co_await cache_->home_store().marker().sweep(std::chrono::milliseconds(0)); }
    Message from_peer(MessageKind kind, PageId page) const {
        Message message;
        message.kind = kind;
        message.from = peer;
        message.view_epoch = 1;
        message.map_epoch = cache_->membership().ranges().epoch();
        message.incarnation = peer_process_.incarnation;
        message.page = page;
        return message;
    }
    // It asks for what is dirty, and takes it when it is given.
    void ask_for_dirty() {
        ASSERT_TRUE(hear(MessageKind::flush_ask, ++last_request_));
        loop_->run_until_done(turns(*loop_));
    }
    Result<> take_write_back() {
        const Message* const written = fabric_.last(MessageKind::write_back);
        if (!written) return fail(Errc::invalid);
        Message answer = from_peer(MessageKind::written_back, written->page);
        answer.tenure = written->tenure;
        answer.sequence = written->sequence;
        return cache_->inbox().on_message(answer, nullptr);
    }
    bool is_in_set_if_dirty(FrameId id) {
        const Frame& frame = cache_->pool().frame(id);
        return (frame.dirty.load() | frame.writing.load()) == 0 || cache_->pages().dirty_frames().has(id);
    }

    size_t answered_ = 0;
    Tenure tenure_ = protocol::first_tenure_of(1);
    protocol::RequestId last_request_ = 100;
};

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

struct WaitingWrite {
    static Task<> run(CachedVolume& volume, uint64_t number, Result<>& into, bool& over) {
        const std::vector<std::byte> bytes(page_size, std::byte{3});
        if (Loop* const loop = loop_of_test) co_await Yield(*loop);
        into = co_await volume.write(number * page_size, bytes);
        over = true;
    }
    inline static Loop* loop_of_test = nullptr;
    static Task<> pause(Loop& loop) { co_await loop.sleep(std::chrono::milliseconds(150)); }
};

TEST_F(CacheLinks, who_waits_for_room_is_refused_once_the_store_of_the_home_has_failed) {
    WritableShare& share = cache_->writable_share();
    while (share.try_enter(peer)) {
    }
    Gate writes;
    bool over = false;
    Result<> written;
    writes.spawn(WaitingWrite::run(*volume_, theirs(), written, over));
    ASSERT_TRUE(share.anyone_waits());
    Message refusal = from_peer(MessageKind::no_space, their_page(1));
    refusal.request_id = 1;
    refusal.flags = protocol::flag_lost;
    ASSERT_TRUE(cache_->inbox().on_message(refusal, nullptr));
    ASSERT_TRUE(cache_->membership().refuses_writes_of(their_page()));
    loop_->run_until_done(WaitingWrite::pause(*loop_));
    EXPECT_TRUE(over) << "it waits for ever";
    cache_->abandon();
    loop_->run_until_done(writes.close());
}

class Room : public CacheLinks {
  protected:
    void check(bool fails) {
        WritableShare& share = cache_->writable_share();
        for (uint64_t i = 0; i < 8; ++i) (void)own(their_page(i));
        WaitingWrite::loop_of_test = loop_.get();
        cut();
        while (share.try_enter(peer)) {
        }
        if (fails) {
            device_->fail_writes(true);
            (void)loop_->run_until_done(
                cache_->store().mark(*loop_, std::vector<PageId>{PageId::of(volume_id, page_ + 500)}));
            ASSERT_TRUE(cache_->store().failed());
        }
        Gate writes;
        bool over = false;
        Result<> written;
        writes.spawn(WaitingWrite::run(*volume_, theirs() + 10, written, over));
        loop_->run_until_done(WaitingWrite::pause(*loop_));
        EXPECT_FALSE(over);
        EXPECT_TRUE(share.anyone_waits());
        const size_t before = fabric_.count(MessageKind::evict);
        link();
        const size_t said = fabric_.sent.size();
        for (size_t i = 0; i < said; ++i) {
            const Message hello = fabric_.sent[i].message;
            if (hello.kind != MessageKind::hello) continue;
            Message confirm = from_peer(MessageKind::confirm, hello.page);
            confirm.tenure = hello.tenure;
            EXPECT_TRUE(cache_->inbox().on_message(confirm, nullptr));
        }
        loop_->run_until_done(WaitingWrite::pause(*loop_));
        EXPECT_GT(fabric_.count(MessageKind::evict), before) << "nobody makes room";
        cache_->abandon();
        loop_->run_until_done(writes.close());
    }
};
TEST_F(Room, is_made_when_a_link_is_back) {
    check(false);
}
TEST_F(Room, is_made_when_a_link_is_back_although_a_store_failed) {
    check(true);
}

TEST_F(CacheLinks, who_gives_up_room_at_the_end_has_had_none) {
    WritableShare& share = cache_->writable_share();
    while (share.try_enter(peer)) {
    }
    const size_t before = share.count(peer);
    Gate writes;
    bool over = false;
    Result<> written;
    writes.spawn(WaitingWrite::run(*volume_, theirs(), written, over));
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(over);
    cache_->abandon();
    loop_->run_until_done(writes.close());
    EXPECT_FALSE(written);
    EXPECT_EQ(share.count(peer), before);
}

TEST_F(CacheLinks, a_page_that_is_writable_needs_no_room) {
    (void)own(their_page());
    WritableShare& share = cache_->writable_share();
    while (share.try_enter(peer)) {
    }
    Gate zeroes;
    bool over = false;
    zeroes.spawn([](CachedVolume& volume, uint64_t number, bool& done) -> Task<> {
        done = (co_await volume.zero(number * page_size, page_size, true)).has_value();
    }(*volume_, theirs(), over));
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(over);
    cache_->abandon();
    loop_->run_until_done(zeroes.close());
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

class Interrupting final : public Interrupt {
  public:
    static Task<> write(CachedVolume& volume, uint64_t number, Interrupt& interrupt, bool& over) {
        co_await CarryInterrupt(interrupt);
        const std::vector<std::byte> bytes(8, std::byte{3});
        (void)co_await volume.write(number * page_size, bytes);
        over = true;
    }
};

TEST_F(CacheLinks, who_gives_up_as_there_is_room_asks_for_nothing) {
    WritableShare& share = cache_->writable_share();
    while (share.try_enter(peer)) {
    }
    const size_t full = share.count(peer);
    Interrupting interrupt;
    Gate writes;
    bool over = false;
    writes.spawn(Interrupting::write(*volume_, theirs(), interrupt, over));
    ASSERT_TRUE(share.anyone_waits());
    share.leave(peer);
    interrupt.raise();
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(over);
    EXPECT_EQ(fabric_.count(MessageKind::get_exclusive), 0u);
    EXPECT_EQ(share.count(peer), full - 1);
    if (!over) cache_->abandon();
    loop_->run_until_done(writes.close());
}

TEST_F(CacheLinks, who_gives_up_as_a_frame_is_free_gives_it_back) {
    std::vector<FrameId> taken;
    for (FrameId id = 0; (id = cache_->pool().try_take(use_holder, cache_->provider().reserve_count())) != no_frame;)
        taken.push_back(id);
    Interrupting interrupt;
    Gate writes;
    bool over = false;
    writes.spawn(Interrupting::write(*volume_, theirs(), interrupt, over));
    EXPECT_FALSE(over);
    const size_t before = cache_->pool().free_count();
    cache_->supply().give(taken.back());
    taken.pop_back();
    interrupt.raise();
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(over);
    EXPECT_EQ(cache_->pool().free_count(), before + 1);
    for (const FrameId id : taken) cache_->supply().give(id);
    if (!over) cache_->abandon();
    loop_->run_until_done(writes.close());
}

TEST_F(CacheLinks, what_was_seen_of_a_home_stays_while_it_is_away) {
    const FrameId id = own(their_page());
    cut();
    std::vector<FrameId> none;
    EXPECT_FALSE(cache_->eviction().try_evict(id, none));
    EXPECT_TRUE(cache_->pages().holds(their_page()));
}

}  // namespace
}  // namespace tarn::home_on_device
