// Waits: who finds nothing, says that it waits and looks again; who brings something, and looks who waits. None of the
// two may miss the other: a thread that sleeps although what it waits for is there never ends.
#include <array>

#include "coherence/pages/frame_supply.hpp"
#include "coherence/pages/page_provider.hpp"
#include "coherence/pages/writable_share.hpp"
#include "tests/sim/threads/scenarios.hpp"
#include "utils/broadcast.hpp"

namespace tarn::threads {

namespace {

struct Call final : Loop::Posted {
    void run() override {
        require(Loop::current() == loop, "a call runs on another loop's thread");
        ++runs;
    }
    Loop* loop = nullptr;
    unsigned runs = 0;
};

void loop_post() {
    Loop loop;
    std::array<Call, 3> calls;
    for (Call& call : calls) call.loop = &loop;
    const auto owner = [&] {
        loop.attach();
        while (calls[0].runs == 0 || calls[1].runs == 0 || calls[2].runs == 0) loop.turn();
    };
    const auto first = [&] {
        loop.post(calls[0]);
        loop.post(calls[1]);
    };
    run({owner, first, [&] { loop.post(calls[2]); }});
    for (const Call& call : calls) require(call.runs == 1, "a call runs once");
}

// What a call brings along is the owner's once it runs.
void loop_hand_over() {
    struct Bringing final : Loop::Posted {
        void run() override { is_done = brought.get() == 7; }
        Plain<int> brought{"what a call brings along"};
        bool is_done = false;
    };
    Loop loop;
    std::array<Bringing, 2> calls;
    const auto owner = [&] {
        loop.attach();
        while (!calls[0].is_done || !calls[1].is_done) loop.turn();
    };
    const auto poster = [&](Bringing& call) {
        call.brought.set(7);
        loop.post(call);
    };
    run({owner, [&] { poster(calls[0]); }, [&] { poster(calls[1]); }});
}

void broadcast() {
    Broadcast changed;
    Atomic<unsigned> condition{0};
    const auto waiter = [&] {
        struct Wait {
            static Task<> until(Broadcast& changed, Atomic<unsigned>& condition) {
                for (uint64_t seen = changed.count(); condition.load(std::memory_order_relaxed) != 2;
                     seen = changed.count())
                    co_await changed.next(seen);
            }
        };
        Loop loop;
        loop.attach();
        loop.spawn(Wait::until(changed, condition));
        while (loop.has_tasks()) loop.turn();
    };
    const auto announcer = [&] {
        for (int i = 0; i < 2; ++i) {
            condition.fetch_add(1, std::memory_order_relaxed);
            changed.announce();
        }
    };
    run({waiter, announcer});
}

struct Waiter final : FrameWaiter {
    explicit Waiter(Loop& loop) : FrameWaiter(loop) {}
    void run() override { require(!std::exchange(posted, true), "a waiter is posted twice"); }
    void turn_until_posted() const {
        while (!posted) shard->turn();
    }
    bool posted = false;
};

// A thread whose loop may have to wait for something.
template <class Body>
auto on_loop(Body body) {
    return [body = std::move(body)] {
        Loop loop;
        loop.attach();
        Waiter waiter(loop);
        body(waiter);
    };
}

class TestLinks final : public Fabric {
  public:
    void resume(HostId) override { ++resumed; }
    unsigned resumed = 0;
};

// Free frames, of which there are none at first.
struct Supply {
    explicit Supply(size_t frame_count) : pool(std::make_unique<Arena>(frame_count)), replacement(pool) {
        peers.set_fabric(links);
        while (frames.take() != no_frame) {
        }
        name_memory(pool, "pool");
        name_memory(frames, "supply");
    }
    // As an access does: takes a frame, or waits for one.
    void take(Waiter& waiter) {
        waiter.frame = frames.take();
        if (waiter.frame != no_frame) return;
        frames.wait(waiter);
        waiter.turn_until_posted();
        require(waiter.gave_up || waiter.frame != no_frame, "a waiter is posted with nothing");
    }

    FramePool pool;
    Replacement replacement;
    Membership membership;
    TestLinks links;
    Peers peers;
    PageProvider provider;
    FrameSupply frames{pool, replacement, membership, peers, provider};
};

void supply_wait() {
    Supply supply(2);
    const auto access = on_loop([&](Waiter& waiter) { supply.take(waiter); });
    const auto giver = [&] {
        supply.frames.give(0);
        supply.frames.give(1);
    };
    run({access, access, giver});
    require(supply.pool.free_count() == 0, "each frame has one user");
}

// One frame goes from hand to hand.
void supply_chain() {
    Supply supply(1);
    const auto access = on_loop([&](Waiter& waiter) {
        supply.take(waiter);
        supply.frames.give(waiter.frame);
    });
    run({access, access, [&] { supply.frames.give(0); }});
    require(supply.pool.free_count() == 1 && !supply.frames.anyone_waits(), "the frame is free in the end");
}

void supply_cancel() {
    Supply supply(1);
    const auto access = on_loop([&](Waiter& waiter) {
        supply.frames.wait(waiter);
        if (supply.frames.cancel(waiter)) return;
        waiter.turn_until_posted();
        supply.frames.give(waiter.frame);
    });
    run({access, access, [&] { supply.frames.give(0); }});
    require(supply.pool.free_count() == 1 && !supply.frames.anyone_waits(), "the frame is free in the end");
}

void supply_abandon() {
    Supply supply(1);
    const auto access = on_loop([&](Waiter& waiter) { supply.take(waiter); });
    run({access, access, [&] { supply.frames.abandon(); }});
}

// A link that finds no frame for what it receives is told when there is one.
void supply_lend() {
    Supply supply(1);
    bool lent = false;
    run({[&] { lent = supply.frames.lend(1) != nullptr; }, [&] { supply.frames.give(0); }});
    require(lent || supply.links.resumed == 1, "a link that has no frame is not told that there is one");
}

struct Share {
    // Pages of the one home fill its share.
    Share() : share(4) {
        while (share.try_enter(home)) ++entered;
        name_memory(share, "share");
    }
    // As an access does.
    void enter(Waiter& waiter) {
        if (!share.anyone_waits_for(home) && share.try_enter(home)) return;
        share.wait(waiter, home);
        waiter.turn_until_posted();
    }
    static constexpr HostId home = 1;
    WritableShare share;
    size_t entered = 0;
};

// Each serves all homes: these runs are long, so few of their preemptions are tried.
void share_wait_for(unsigned accesses) {
    Share room;
    const auto access = on_loop([&](Waiter& waiter) { room.enter(waiter); });
    const auto leaver = [&] {
        for (unsigned i = 0; i < accesses; ++i) room.share.leave(Share::home);
    };
    std::vector<std::function<void()>> all(accesses, access);
    all.emplace_back(leaver);
    run(std::move(all));
    require(room.share.count(Share::home) == room.entered && !room.share.anyone_waits(), "room is lost");
}
void share_wait() {
    share_wait_for(1);
}
void share_wait_both() {
    share_wait_for(2);
}

// Who waits for a page of one home goes on when pages of another one leave.
void share_other_home() {
    Share room;
    constexpr HostId other = 2;
    room.share.leave(Share::home);
    room.share.enter(other);
    require(!room.share.try_enter(Share::home), "it has its share");
    const auto access = on_loop([&](Waiter& waiter) {
        room.enter(waiter);
        room.share.leave(Share::home);
    });
    run({access, [&] { room.share.leave(other); }});
    require(!room.share.anyone_waits(), "somebody waits in the end");
}

void share_cancel() {
    Share room;
    const auto access = on_loop([&](Waiter& waiter) {
        room.share.wait(waiter, Share::home);
        if (room.share.cancel(waiter, Share::home)) return;
        waiter.turn_until_posted();
        room.share.leave(Share::home);
    });
    run({access, access, [&] { room.share.leave(Share::home); }});
    require(room.share.count(Share::home) == room.entered - 1 && !room.share.anyone_waits(), "room is lost");
}

// The store of the home fails: who waits for room is let in, to hear of it.
void share_failed_store() {
    Share room;
    Membership membership;
    const PageId page = PageId::of(1, 0);
    const auto access = on_loop([&](Waiter& waiter) {
        if (room.share.try_enter(Share::home) || membership.refuses_writes_of(page)) return;
        room.share.wait(waiter, Share::home);
        if (membership.refuses_writes_of(page)) room.share.let_in_all(Share::home);
        waiter.turn_until_posted();
    });
    const auto failure = [&] {
        membership.fail_store();
        room.share.let_in_all(Share::home);
    };
    run({access, failure});
}

constexpr std::array scenarios = {
    Scenario{"loop-post", "each call runs once, though the loop goes to sleep just then", loop_post, 3, 1},
    Scenario{"loop-hand-over", "what a call brings along is there when it runs", loop_hand_over, 3, 2},
    Scenario{"broadcast", "who waits hears of every change", broadcast, 4, 2},
    Scenario{"supply-wait", "each access that waits gets a frame", supply_wait, 2, 1},
    Scenario{"supply-chain", "a frame goes from one access to the next", supply_chain, 2, 1},
    Scenario{"supply-cancel", "an access that gives up takes no frame along", supply_cancel, 2, 1},
    Scenario{"supply-abandon", "at shutdown whoever waits gives up", supply_abandon, 2, 1},
    Scenario{"supply-lend", "a link that found no frame is told of the next", supply_lend, 4, 2},
    Scenario{"share-wait", "an access that waits for room gets it", share_wait, 2, 2},
    Scenario{"share-wait-both", "two accesses that wait for room get it", share_wait_both, 1, 1},
    Scenario{"share-other-home", "room that another home leaves is room", share_other_home, 2, 1},
    Scenario{"share-cancel", "an access that gives up takes no room along", share_cancel, 1, 1},
    Scenario{"share-failed-store", "who waits for room hears that the store failed", share_failed_store, 3, 2},
};

}  // namespace

std::span<const Scenario> wait_scenarios() {
    return scenarios;
}

}  // namespace tarn::threads
