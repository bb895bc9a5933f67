// Tables: frames that are found, walked and taken while other threads change what names them.
#include <array>
#include <vector>

#include "tests/sim/threads/scenarios.hpp"
#include "tiers/dram/frame_index.hpp"
#include "tiers/dram/frame_pool.hpp"
#include "tiers/dram/frame_set.hpp"

namespace tarn::threads {

namespace {

// A table of four frames and pages that share one of its buckets; page i is in frame i.
struct Table {
    Table() : pool(std::make_unique<Arena>(4)), index(pool, 0, &Frame::next) {
        for (uint64_t number = 0; pages.size() < 3; ++number) {
            const PageId page = PageId::of(1, number);
            if (pages.empty() || bucket_of(page) == bucket_of(pages[0])) pages.push_back(page);
        }
        for (FrameId id = 0; id < 4; ++id) name_memory(pool.frame(id), "frame");
    }
    // Of the sixteen that so small a table has.
    static uint64_t bucket_of(PageId page) { return (page.value ^ mix64(page.value >> 4) >> 60) % 16; }
    void insert(unsigned page) {
        Frame& frame = pool.frame(page);
        frame.page.store(pages[page].value, std::memory_order_release);
        index.insert(frame);
    }
    Frame* find(unsigned page) {
        Frame* const found = index.find(pages[page]);
        require(!found || found == &pool.frame(page), "a search finds another page's frame");
        return found;
    }

    FramePool pool;
    FrameIndex index;
    std::vector<PageId> pages;
};

void index_insert() {
    Table table;
    table.insert(0);
    const auto reader = [&] {
        require(table.find(0), "a page is missed while another one comes");
        (void)table.find(2);
    };
    const auto stripe = [&] {
        table.insert(1);
        table.insert(2);
        table.index.erase(table.pool.frame(2));
    };
    run({reader, stripe});
    require(table.find(1), "a page that came is missed");
}

void index_erase() {
    Table table;
    for (const unsigned page : {0u, 1u, 2u}) table.insert(page);
    const auto reader = [&] {
        require(table.find(0), "a page is missed while another one leaves");
        (void)table.find(1);
    };
    const auto stripe = [&] {
        table.index.erase(table.pool.frame(2));
        table.index.erase(table.pool.frame(1));
    };
    run({reader, stripe});
    require(!table.find(1) && !table.find(2), "a page that left is found");
    require(table.index.find_exactly(table.pages[0]), "the chain is broken");
}

// A frame leaves, and becomes another page's in the same chain.
void index_move() {
    Table table;
    table.insert(0);
    table.insert(1);
    const auto reader = [&] {
        for (const unsigned page : {0u, 2u}) {
            Frame* const found = table.index.find(table.pages[page]);
            require(!found || found == &table.pool.frame(page == 2 ? 1 : page), "a search finds another page's frame");
        }
    };
    const auto stripe = [&] {
        Frame& frame = table.pool.frame(1);
        table.index.erase(frame);
        frame.page.store(table.pages[2].value, std::memory_order_release);
        table.index.insert(frame);
    };
    run({reader, reader, stripe});
}

constexpr FrameId member = 70;  // not in the first word

void set_walk() {
    FrameSet set(200);
    bool is_there = false;
    const auto adder = [&] {
        set.add(member);
        is_there = true;
    };
    const auto walker = [&] {
        const bool was_there = is_there;
        bool seen = false;
        set.for_each([&](FrameId id) { seen |= id == member; });
        require(seen || !was_there, "a walk misses a member");
    };
    set.add(member);
    set.remove(member);
    run({adder, walker, walker});
    walker();
}

// Each of two threads adds a frame of the same word and takes it out again, while a walk clears what it finds empty.
void set_churn() {
    FrameSet set(200);
    const auto churner = [&](FrameId id) {
        set.add(id);
        set.remove(id);
        set.add(id);
    };
    set.add(member);
    set.remove(member);
    run({[&] { churner(member); }, [&] { churner(member + 1); }, [&] { set.for_each([](FrameId) {}); }});
    unsigned seen = 0;
    set.for_each([&](FrameId) { ++seen; });
    require(seen == 2, "a walk misses a member");
}

void pool_take() {
    FramePool pool(std::make_unique<Arena>(2));
    std::array<Plain<unsigned>, 2> bytes{Plain<unsigned>("bytes of a frame"), Plain<unsigned>("bytes of a frame")};
    const auto user = [&](unsigned name) {
        for (const unsigned round : {0u, 1u}) {
            const FrameId id = pool.try_take(use_holder, 0);
            if (id == no_frame) continue;
            bytes[id].set(name + round);
            require(bytes[id].get() == name + round, "a frame is given twice");
            pool.release(id, use_holder);
        }
    };
    run({[&] { user(10); }, [&] { user(20); }});
    require(pool.free_count() == 2, "a frame is lost");
}

// Both uses of a frame end at once.
void pool_release() {
    FramePool pool(std::make_unique<Arena>(1));
    Plain<unsigned> bytes("bytes of a frame");
    const FrameId id = pool.try_take(use_holder, 0);
    pool.frame(id).uses.fetch_or(use_home, std::memory_order_relaxed);
    unsigned freed = 0;
    const auto user = [&](FrameUse use) {
        (void)bytes.get();
        freed += pool.release(id, use) ? 1 : 0;
    };
    const auto taker = [&] {
        if (pool.try_take(use_holder, 0) != no_frame) bytes.set(1);
    };
    run({[&] { user(use_holder); }, [&] { user(use_home); }, taker});
    require(freed == 1, "a frame comes free once");
}

constexpr std::array scenarios = {
    Scenario{"index-insert", "a search finds what is there while others come and leave", index_insert, 4, 2},
    Scenario{"index-erase", "a search finds what is there while other pages leave", index_erase, 4, 2},
    Scenario{"index-move", "a search finds a page's own frame or none", index_move, 2, 1},
    Scenario{"set-walk", "a walk sees every member", set_walk, 3, 1},
    Scenario{"set-churn", "no member is forgotten", set_churn, 3, 1},
    Scenario{"pool-take", "a frame has one user", pool_take, 3, 1},
    Scenario{"pool-release", "the last use frees the frame, once", pool_release, 4, 2},
};

}  // namespace

std::span<const Scenario> table_scenarios() {
    return scenarios;
}

}  // namespace tarn::threads
