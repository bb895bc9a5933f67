// Latches: the spin lock, and the word of a frame between readers, writers and the thread that steps the stripe.
#include <array>
#include <mutex>

#include "tests/sim/threads/scenarios.hpp"
#include "tiers/dram/frame_word.hpp"
#include "utils/spinlock.hpp"

namespace tarn::threads {

namespace {

void spin_lock() {
    SpinLock lock;
    Plain<int> guarded("what the lock guards");
    name_memory(lock, "lock");
    const auto locker = [&] {
        const std::lock_guard guard(lock);
        guarded.set(guarded.get() + 1);
    };
    const auto trier = [&] {
        if (!lock.try_lock()) return;
        guarded.set(guarded.get() + 1);
        lock.unlock();
    };
    run({locker, locker, trier});
    require(guarded.get() >= 2, "who waits for the lock gets it");
}

// A frame whose bytes are two cells, which every write makes equal. They are no atomics in tarnd, where x86 gives the
// stores of each thread an order: here they are release stores and relaxed loads.
struct Cells {
    Atomic<unsigned> first{0};
    Atomic<unsigned> second{0};
    void write(unsigned value) {
        first.store(value, std::memory_order_release);
        second.store(value, std::memory_order_release);
    }
    std::array<unsigned, 2> read() const {
        return {first.load(std::memory_order_relaxed), second.load(std::memory_order_relaxed)};
    }
};

struct TestFrame {
    explicit TestFrame(FrameWord::Value ownership) {
        word.open(ownership);
        name_memory(word, "word");
        name_memory(cells, "bytes");
        name_memory(page, "page");
        require_always([this] { return writers <= 1 && (writers == 0 || readers == 0); },
                       "somebody is inside with a writer");
    }

    // The last latch of a busy frame is gone.
    void report() {
        require(readers == 0 && writers == 0, "the frame is reported quiet while somebody is inside");
        require(reports++ == 0, "the frame is reported quiet twice");
        rewrite();
    }
    // What the stripe does with a quiet frame.
    void rewrite() { bytes.set(bytes.get() + 1); }
    void pin_once() {
        if (!word.try_pin(word.load())) return;
        ++readers;
        last_read = bytes.get();
        --readers;
        if (word.unpin()) report();
    }
    void write_once() {
        if (!word.try_latch_exclusive(word.load())) return;
        ++writers;
        ++latched;
        bytes.set(bytes.get() + 1);
        --writers;
        if (word.unlatch_exclusive()) report();
    }
    void make_busy() {
        if (word.make_busy()) report();
    }

    FrameWord word;
    Atomic<unsigned> page{0};
    Cells cells;
    Plain<unsigned> bytes{"bytes of a frame"};
    unsigned readers = 0;
    unsigned writers = 0;
    unsigned latched = 0;
    unsigned reports = 0;
    unsigned last_read = 0;
};

void word_excludes() {
    TestFrame frame(FrameWord::writable);
    const auto writer = [&] { frame.write_once(); };
    run({writer, writer, [&] { frame.pin_once(); }});
}

void word_reports_readers() {
    TestFrame frame(FrameWord::shared);
    const auto reader = [&] { frame.pin_once(); };
    run({reader, reader, [&] { frame.make_busy(); }});
    require(frame.reports == 1, "nobody reports that the frame is quiet");
}

void word_reports_writer() {
    TestFrame frame(FrameWord::writable);
    run({[&] { frame.write_once(); }, [&] { frame.pin_once(); }, [&] { frame.make_busy(); }});
    require(frame.reports == 1, "nobody reports that the frame is quiet");
}

void word_optimistic() {
    TestFrame frame(FrameWord::writable);
    const auto writer = [&] {
        for (const unsigned value : {1u, 2u})
            if (frame.word.try_latch_exclusive(frame.word.load())) {
                frame.cells.write(value);
                (void)frame.word.unlatch_exclusive();
            }
    };
    const auto reader = [&] {
        const FrameWord::Value seen = frame.word.load();
        if (!FrameWord::readable(seen)) return;
        const auto cells = frame.cells.read();
        if (!frame.word.unchanged_since(seen)) return;
        require(cells[0] == cells[1], "a reader trusts half of a write");
        require(cells[0] == FrameWord::version(seen) - 1, "a reader trusts bytes of another version");
    };
    run({writer, reader});
}

// The stripe gives the frame to another page.
void give_away(TestFrame& frame, unsigned page) {
    if (!frame.word.make_busy()) return;
    frame.word.open(FrameWord::none);
    frame.cells.write(page);
    frame.bytes.set(page);
    frame.page.store(page, std::memory_order_release);
    frame.word.open(FrameWord::shared);
}

void word_reuse_optimistic() {
    TestFrame frame(FrameWord::shared);
    const auto reader = [&] {
        const FrameWord::Value seen = frame.word.load();
        if (!FrameWord::readable(seen) || frame.page.load(std::memory_order_relaxed) != 0) return;
        const auto cells = frame.cells.read();
        if (frame.word.unchanged_since(seen))
            require(cells[0] == 0 && cells[1] == 0, "a reader trusts bytes of another page");
    };
    run({reader, [&] { give_away(frame, 7); }});
}

void word_reuse_pinned() {
    TestFrame frame(FrameWord::shared);
    const auto reader = [&] {
        const FrameWord::Value seen = frame.word.load();
        const unsigned page = frame.page.load(std::memory_order_relaxed);
        if (!frame.word.try_pin(seen)) return;
        require(frame.bytes.get() == page, "a pin keeps another page than the one that was looked at");
        (void)frame.word.unpin();
    };
    run({reader, [&] { give_away(frame, 7); }});
}

void word_recalled() {
    TestFrame frame(FrameWord::writable);
    unsigned before = 0;
    const auto writer = [&] {
        frame.write_once();
        frame.write_once();
    };
    const auto stripe = [&] {
        frame.word.recall(1);
        before = frame.latched;
        frame.make_busy();
    };
    run({writer, stripe});
    require(frame.reports == 1, "nobody reports that the frame is quiet");
    require(frame.latched <= before + 1, "more writers than are left get in");
}

constexpr std::array scenarios = {
    Scenario{"spin-lock", "one thread holds it at a time, and who waits gets it", spin_lock, 4, 2},
    Scenario{"word-excludes", "a writer is alone in the frame", word_excludes, 4, 2},
    Scenario{"word-reports-readers", "the last latch of a busy frame is reported, once", word_reports_readers, 4, 2},
    Scenario{"word-reports-writer", "the same with a writer", word_reports_writer, 4, 2},
    Scenario{"word-optimistic", "what a reader trusts is one write", word_optimistic, 5, 2},
    Scenario{"word-reuse-optimistic", "what a reader trusts is of its page", word_reuse_optimistic, 5, 2},
    Scenario{"word-reuse-pinned", "who pins a frame has its page", word_reuse_pinned, 5, 2},
    Scenario{"word-recalled", "a recalled frame lets in as many writers as are left", word_recalled, 5, 2},
};

}  // namespace

std::span<const Scenario> latch_scenarios() {
    return scenarios;
}

}  // namespace tarn::threads
