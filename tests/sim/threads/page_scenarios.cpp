// Pages: the hot path of readers and writers while the page leaves its frame, and the frame becomes another page's.
#include <algorithm>
#include <array>
#include <optional>

#include "coherence/pages/held_frames.hpp"
#include "coherence/pages/page_provider.hpp"
#include "coherence/pages/pages.hpp"
#include "tests/sim/threads/scenarios.hpp"

namespace tarn::threads {

namespace {

using protocol::Ownership;
using Bytes = std::array<std::byte, 8>;

Bytes filled(unsigned value) {
    Bytes bytes;
    bytes.fill(static_cast<std::byte>(value));
    return bytes;
}

// A host with one frame, or two, and the steps that its stripe takes: a page comes, and leaves as soon as it is quiet.
class TestHost final : Pages::Listener {
  public:
    static constexpr protocol::WriteLease lease{.writes = 1, .time_us = 1'000'000'000};

    explicit TestHost(size_t frame_count = 1)
        : pool(std::make_unique<Arena>(frame_count)),
          share(frame_count),
          pages(pool, membership, 0, *this),
          supply(pool, pages.replacement(), membership, peers, provider),
          held_frames({membership, pool, pages, stripes, supply, share, provider}, lease) {
        stripes.on_step = [this](const protocol::Event& event) {
            require(event.kind == protocol::Event::Kind::quiesced, "only that the frame is quiet");
            take_away(event.page, event.dirty);
        };
        for (FrameId id = 0; id < frame_count; ++id) name_memory(pool.frame(id), "frame");
        name_memory(stripes, "stripe");
    }

    static PageId page(uint64_t number) { return PageId::of(1, number); }

    // Steps of the stripe. A page's first bytes are its number.
    void bring(uint64_t number, Ownership ownership) {
        const Stripes::Turn turn(stripes, page(number));
        const FrameId frame = supply.take_at_once();
        if (frame == no_frame) return;
        std::ranges::copy(filled(static_cast<unsigned>(number)), pool.bytes(frame));
        held_frames.set_access(page(number), frame, ownership, lost);
    }
    // recalled: another host waits for it.
    void drop(uint64_t number, bool recalled = false) {
        const FrameId frame = frame_of(number);
        bool leased = false;
        {
            const Stripes::Turn turn(stripes, page(number));
            const Frames::Quiet quiet = held_frames.quiesce(page(number), frame, recalled);
            if (quiet == Frames::Quiet::now) take_away(page(number), Pages::unwritten(pool.frame(frame)));
            leased = quiet == Frames::Quiet::leased;
        }
        if (leased) held_frames.keep_lease(page(number), frame);
        supply.freed();
    }
    FrameId frame_of(uint64_t number) { return pool.id_of(*pages.index().find_exactly(page(number))); }

    // What left, as it was then.
    struct Left {
        Bytes bytes;
        DirtyMask dirty;
    };
    std::optional<Left> left;
    bool has_left() const { return left.has_value(); }

    uint32_t lost = 0;
    Membership membership;
    Peers peers;
    PageProvider provider;
    FramePool pool;
    Stripes stripes;
    WritableShare share;
    Pages pages;
    FrameSupply supply;
    HeldFrames held_frames;
    LossView view;

  private:
    void on_quiet(Frame& frame, PageId page) override { stripes.step(HeldFrames::quiesced(frame, page)); }
    void on_first_use(LossView& of, HostId home) override { of.began_after(home, 0); }

    void take_away(PageId page, DirtyMask dirty) {
        require(!left, "a page leaves twice");
        const FrameId frame = pool.id_of(*pages.index().find_exactly(page));
        left.emplace().dirty = dirty;
        std::copy_n(pool.bytes(frame), left->bytes.size(), left->bytes.begin());
        held_frames.set_access(page, frame, Ownership::none, 0);
        held_frames.release(frame);
    }
};

bool shows(TestHost& host, uint64_t number) {
    Bytes seen;
    if (!host.pages.try_read(TestHost::page(number), 0, seen, host.view)) return false;
    require(seen == filled(static_cast<unsigned>(number)), "a reader sees another page's bytes");
    return true;
}

void pages_read() {
    TestHost host;
    host.bring(1, Ownership::shared);
    const auto reader = [&] {
        (void)shows(host, 1);
        (void)shows(host, 2);
    };
    const auto stripe = [&] {
        host.drop(1);
        host.bring(2, Ownership::shared);
    };
    run({reader, stripe});
    require(shows(host, 2), "the page is there");
}

void pages_pin() {
    TestHost host;
    host.bring(1, Ownership::shared);
    const auto reader = [&] {
        const FrameId frame = host.pages.try_pin(TestHost::page(1), host.view);
        if (frame == no_frame) return;
        // Whoever sends them looks again and again.
        for (int i = 0; i < 2; ++i) {
            require(std::equal(host.pages.bytes(frame), host.pages.bytes(frame) + 8, filled(1).begin()),
                    "pinned bytes change");
            (void)host.pages.holds(TestHost::page(1));
        }
        host.pages.unpin(frame);
    };
    const auto stripe = [&] {
        host.drop(1);
        host.bring(2, Ownership::shared);
    };
    run({reader, stripe});
    require(host.has_left(), "the page leaves");
}

void pages_write() {
    TestHost host;
    host.bring(1, Ownership::exclusive);
    bool written = false;
    const auto writer = [&] { written = host.pages.try_write(TestHost::page(1), 0, filled(9), host.view); };
    const auto reader = [&] {
        const FrameId frame = host.pages.try_pin(TestHost::page(1), host.view);
        if (frame != no_frame) host.pages.unpin(frame);
    };
    run({writer, reader, [&] { host.drop(1); }});
    require(host.has_left(), "the page leaves");
    require(host.left->bytes == filled(written ? 9 : 1), "a write is lost");
    require(host.left->dirty == (written ? 1 : 0), "a page that was written leaves as a clean one");
}

// Two pages, of which one leaves.
void pages_write_run() {
    TestHost host(2);
    host.bring(1, Ownership::exclusive);
    host.bring(2, Ownership::exclusive);
    const std::vector<std::byte> bytes(16, std::byte{9});
    bool written = false;
    const auto writer = [&] { written = host.pages.try_write_run(1, 2 * page_size - 8, bytes, host.view); };
    const auto reader = [&] {
        Bytes seen;
        if (host.pages.try_read(TestHost::page(2), 0, seen, host.view))
            require(seen == filled(2) || seen == filled(9), "a reader sees another page's bytes");
    };
    run({writer, reader, [&] { host.drop(2); }});
    require(host.has_left(), "the page leaves");
    require(host.left->bytes == filled(written ? 9 : 2), "of a write of two pages, one is left");
    Bytes seen;
    require(host.pages.try_read(TestHost::page(1), page_size - 8, seen, host.view), "the other page stays");
    require(seen == filled(written ? 9 : 0), "a write of two pages changes one");
}

// An access that was woken gets in, whoever else is inside, and its page leaves after it.
void pages_woken() {
    TestHost host;
    host.bring(1, Ownership::exclusive);
    unsigned inside = 0;
    const auto access = [&] {
        const FrameId frame = host.frame_of(1);
        host.pages.with_frame(frame, true, [&](Frame& granted, std::byte*) {
            require(inside++ == 0, "somebody is inside with a writer");
            host.pages.write_frame(granted, 0, filled(9));
            --inside;
        });
        host.drop(1);
    };
    const auto reader = [&] {
        const FrameId frame = host.pages.try_pin(TestHost::page(1), host.view);
        if (frame == no_frame) return;
        require(inside == 0, "somebody is inside with a writer");
        host.pages.unpin(frame);
    };
    run({access, reader, reader});
    require(host.has_left(), "the page leaves");
    require(host.left->bytes == filled(9) && host.left->dirty == 1, "a write is lost");
}

// Another host waits for a page that is written here: it may be written once more, and leaves.
void pages_lease() {
    TestHost host;
    Loop loop;
    host.bring(1, Ownership::exclusive);
    unsigned written = 0;
    const auto write = [&](unsigned value) {
        if (host.pages.try_write(TestHost::page(1), 0, filled(value), host.view)) written = value;
    };
    write(7);
    const auto shard = [&] {
        loop.attach();
        host.drop(1, true);
        while (loop.has_tasks()) loop.turn();
    };
    const auto writer = [&] {
        write(8);
        write(9);
    };
    run({shard, writer});
    require(host.has_left(), "the page leaves");
    require(host.left->bytes == filled(written), "a write is lost");
}

// Home has taken what was written, while more is written.
void dirty_frames() {
    TestHost host;
    host.bring(1, Ownership::exclusive);
    const FrameId frame = host.frame_of(1);
    require(host.pages.try_write(TestHost::page(1), 0, filled(8), host.view), "the page may be written");
    host.held_frames.begin_writing(frame);
    const auto writer = [&] { (void)host.pages.try_write(TestHost::page(1), 0, filled(9), host.view); };
    const auto stripe = [&] {
        const Stripes::Turn turn(host.stripes, TestHost::page(1));
        host.held_frames.clear_writing(frame);
    };
    unsigned walked = 0;
    run({writer, stripe, [&] { host.pages.dirty_frames().for_each([&](FrameId) { ++walked; }); }});
    walked = 0;
    host.pages.dirty_frames().for_each([&](FrameId) { ++walked; });
    require(walked == 1, "a dirty page is forgotten");
}

// Two threads use a home's pages for the session's first time; the page lost writes after the session began.
void first_use() {
    TestHost host;
    host.lost = 1;
    host.bring(1, Ownership::shared);
    host.view.await(set_of(1));
    const auto reader = [&] {
        Bytes seen;
        require(!host.pages.try_read(TestHost::page(1), 0, seen, host.view), "a session reads back in time");
    };
    run({reader, reader});
}

// A copy of bytes is no step, and sees the newest. So where they are read optimistically, every load does; for what the
// word's orders are worth see latch_scenarios.cpp.
constexpr std::array scenarios = {
    Scenario{"pages-read", "a reader sees its page's bytes or nothing", pages_read, 3, 0},
    Scenario{"pages-pin", "pinned bytes stay until the pin ends, and then the page leaves", pages_pin, 3, 1},
    Scenario{"pages-write", "what was written leaves with its page", pages_write, 2, 1},
    Scenario{"pages-write-run", "a write of two pages changes both or none", pages_write_run, 2, 0},
    Scenario{"pages-woken", "an access that was woken gets in", pages_woken, 2, 1},
    Scenario{"pages-lease", "a page that is recalled leaves, with what was written", pages_lease, 2, 1},
    Scenario{"dirty-frames", "what is dirty is among the dirty frames", dirty_frames, 2, 1},
    Scenario{"first-use", "losses count for whoever uses a page first", first_use, 3, 2},
};

}  // namespace

std::span<const Scenario> page_scenarios() {
    return scenarios;
}

}  // namespace tarn::threads
