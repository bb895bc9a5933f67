// Who waits for room among the pages that may be dirty at a home, or for a frame: it comes, or the wait ends.
#include "tests/unit/cache_links.hpp"
#include "utils/interrupt.hpp"

namespace tarn::home_on_device {
namespace {

struct WaitingWrite {
    static Task<> run(CachedVolume& volume, uint64_t number, Result<>& into, bool& over) {
        const std::vector<std::byte> bytes(page_size, std::byte{3});
        into = co_await volume.write(number * page_size, bytes);
        over = true;
    }
    static Task<> pause(Loop& loop) { co_await loop.sleep(std::chrono::milliseconds(150)); }
};

class Room : public CacheLinks {
  protected:
    void check(bool fails) {
        WritableShare& share = cache_->writable_share();
        for (uint64_t i = 0; i < 8; ++i) (void)own(their_page(i));
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
        writes.spawn([](CachedVolume& volume, uint64_t number, Result<>& into, bool& done, Loop& loop) -> Task<> {
            co_await Yield(loop);
            co_await WaitingWrite::run(volume, number, into, done);
        }(*volume_, theirs() + 10, written, over, *loop_));
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

TEST_F(Room, who_waits_for_room_is_refused_once_the_store_of_the_home_has_failed) {
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

TEST_F(Room, is_made_when_a_link_is_back) {
    check(false);
}
TEST_F(Room, is_made_when_a_link_is_back_although_a_store_failed) {
    check(true);
}

TEST_F(Room, who_gives_up_room_at_the_end_has_had_none) {
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

TEST_F(Room, a_page_that_is_writable_needs_no_room) {
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

class Interrupting final : public Interrupt {
  public:
    static Task<> write(CachedVolume& volume, uint64_t number, Interrupt& interrupt, bool& over) {
        co_await CarryInterrupt(interrupt);
        const std::vector<std::byte> bytes(8, std::byte{3});
        (void)co_await volume.write(number * page_size, bytes);
        over = true;
    }
};

TEST_F(Room, who_gives_up_as_there_is_room_asks_for_nothing) {
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

TEST_F(Room, who_gives_up_as_a_frame_is_free_gives_it_back) {
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

}  // namespace
}  // namespace tarn::home_on_device
