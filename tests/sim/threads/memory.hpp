// Memory: what C++ lets a thread read. Each location keeps all that was stored there; a load may return any of it that
// neither an earlier read nor what happened before hides. Clocks say what happened before what.
//
// Stores to one location are ordered as they are executed, and a read-modify-write reads the last one. A load that is
// seq_cst sees the last seq_cst store or a later one. A seq_cst fence orders a little more than it has to.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace tarn::threads {

constexpr unsigned threads_max = 4;  // 0 is the scenario itself, before and after its threads

// How much of each thread's past is known.
class Clock {
  public:
    void join(const Clock& other) {
        for (unsigned i = 0; i < threads_max; ++i) times_[i] = std::max(times_[i], other.times_[i]);
    }
    uint32_t operator[](unsigned thread) const { return times_[thread]; }
    void advance(unsigned thread) { ++times_[thread]; }

  private:
    std::array<uint32_t, threads_max> times_{};
};

constexpr bool acquires(std::memory_order order) {
    return order == std::memory_order_acquire || order == std::memory_order_consume ||
           order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
constexpr bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

// Of memory that is no atomic: who may have touched it last.
struct PlainAccess {
    unsigned writer = 0;
    uint32_t written = 0;
    std::array<uint32_t, threads_max> read{};
};

class Memory {
  public:
    struct Stored {
        uint64_t value = 0;
        unsigned thread = 0;
        uint32_t time = 0;      // of its thread; 0: it was always there
        uint64_t sequence = 0;  // among all stores
        Clock released;
    };
    struct Location {
        const void* address = nullptr;
        std::vector<Stored> stores;
        size_t last_sequential = 0;
        struct Read {
            uint32_t time;
            size_t index;
        };
        std::array<std::vector<Read>, threads_max> reads;  // by each thread, only such as are newer than its last
    };

    Memory();
    // Everything starts anew.
    void reset();
    void start_thread(unsigned thread) { start(thread, 0); }
    void join_thread(unsigned thread) { clocks_[0].join(clocks_[thread]); }
    // Another object begins to live there.
    void forget(const void* address);

    // value: what is there, if nobody has asked before.
    Location& location(const void* address, uint64_t value);
    // The oldest of the stores that the thread may read.
    size_t oldest_readable(unsigned thread, const Location& location, std::memory_order order) const;
    uint64_t read(unsigned thread, Location& location, size_t index, std::memory_order order);
    // replaces: what it has read as one operation with it, and orders go on from there.
    void write(unsigned thread, Location& location, uint64_t value, std::memory_order order, bool replaces);
    void fence(unsigned thread, std::memory_order order);
    // From now on the thread sees all that was stored up to now, though nothing orders it.
    void catch_up(unsigned thread) { caught_up_[thread] = sequence_; }

    void acquire(unsigned thread, const Clock& released) { clocks_[thread].join(released); }
    void release(unsigned thread, Clock& into) {
        clocks_[thread].advance(thread);
        into.join(clocks_[thread]);
    }

    // False: another thread's access is not ordered with this one, and one of them writes.
    bool read_plain(unsigned thread, PlainAccess& access);
    bool write_plain(unsigned thread, PlainAccess& access);

    // How often a value changed.
    uint64_t change_count() const { return changes_; }

  private:
    struct Slot {
        const void* address = nullptr;
        uint64_t generation = 0;
        size_t index = 0;
    };
    static constexpr size_t slot_count = 1 << 14;

    Slot& slot_of(const void* address);
    void start(unsigned thread, unsigned by) { clocks_[thread] = clocks_[by]; }
    bool happened_before(unsigned thread, unsigned by, uint32_t time) const { return clocks_[thread][by] >= time; }

    std::array<Clock, threads_max> clocks_;
    std::array<Clock, threads_max> unfenced_;  // what relaxed loads have read, for an acquire fence
    std::array<Clock, threads_max> fenced_;    // at the last release fence
    std::array<uint64_t, threads_max> caught_up_{};
    Clock sequential_;  // of seq_cst fences
    uint64_t sequence_ = 0;
    uint64_t changes_ = 0;
    // A table that is emptied by a new generation.
    std::vector<Slot> slots_;
    uint64_t generation_ = 1;
    std::vector<std::unique_ptr<Location>> locations_;
    size_t location_count_ = 0;
};

}  // namespace tarn::threads
