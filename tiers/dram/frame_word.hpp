// FrameWord: the 64 bits by which threads agree on who may touch a frame (PROTOCOL: latches and the hot path).
//
//   version 32 · writes left 11 · recalled 1 · ownership 2 · busy 1 · exclusive 1 · pins 16
//
// Any thread may latch with one compare-and-swap from a word that grants the access and is not busy: there is no
// window between the check of the ownership and the latch. Only the thread that steps the page's stripe sets the
// ownership and busy. The version grows when an exclusive latch is released and when the ownership changes, so that an
// optimistic reader notices both a writer and a frame that became another page's.
//
// Recalled: another host waits for the page. Latches are still granted, but only `writes left` exclusive ones.
//
// Latches are held for microseconds, a pin at most for one system call, and never across a wait. Who drops the last
// latch of a busy frame is told so, and tells the stripe that the frame is quiet.
#pragma once

#include <cstdint>

#include "utils/assert.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class FrameWord {
  public:
    using Value = uint64_t;

    static constexpr Value pin_one = 1;
    static constexpr Value pins_mask = 0xffff;
    static constexpr Value exclusive = 1 << 16;
    static constexpr Value busy = 1 << 17;
    static constexpr unsigned ownership_shift = 18;
    static constexpr Value ownership_mask = Value{3} << ownership_shift;
    static constexpr Value recalled = 1 << 20;
    static constexpr unsigned writes_left_shift = 21;
    static constexpr Value writes_left_one = Value{1} << writes_left_shift;
    static constexpr uint32_t writes_left_max = (1u << 11) - 1;
    static constexpr Value writes_left_mask = Value{writes_left_max} << writes_left_shift;
    static constexpr Value version_one = Value{1} << 32;

    // Ownership as the word holds it: what local threads may do.
    static constexpr Value none = 0;
    static constexpr Value shared = Value{1} << ownership_shift;
    static constexpr Value writable = Value{2} << ownership_shift;

    Value load() const { return word_.load(std::memory_order_acquire); }

    static bool readable(Value word) { return (word & ownership_mask) != none && (word & (busy | exclusive)) == 0; }
    static bool latched(Value word) { return (word & (pins_mask | exclusive)) != 0; }

    // From a word that the caller has seen and found to be its page's. False: it changed.
    bool try_pin(Value seen) {
        return readable(seen) && (seen & pins_mask) != pins_mask &&
               word_.compare_exchange_strong(seen, seen + pin_one, std::memory_order_acquire);
    }
    bool try_latch_exclusive(Value seen) {
        if ((seen & (ownership_mask | busy | exclusive | pins_mask)) != writable) return false;
        Value latched = seen | exclusive;
        if ((seen & recalled) != 0) {
            if ((seen & writes_left_mask) == 0) return false;
            latched -= writes_left_one;
        }
        return word_.compare_exchange_strong(seen, latched, std::memory_order_acquire);
    }

    // True: this was the last latch of a busy frame, and the caller must report it quiet. What all others did in the
    // frame comes before that: hence the acquire.
    [[nodiscard]] bool unpin() {
        const Value before = word_.fetch_sub(pin_one, std::memory_order_acq_rel);
        TARN_ASSERT((before & pins_mask) != 0);
        return (before & busy) != 0 && (before & pins_mask) == pin_one;
    }
    [[nodiscard]] bool unlatch_exclusive() {
        const Value before = word_.fetch_add(version_one - exclusive, std::memory_order_release);
        TARN_ASSERT((before & exclusive) != 0);
        return (before & busy) != 0;
    }

    // The rest is for the thread that steps the stripe.

    // Lets this many more writers in, at most writes_left_max, until busy.
    void recall(uint32_t writes) {
        word_.fetch_or(recalled | (Value{writes} << writes_left_shift & writes_left_mask), std::memory_order_acq_rel);
    }
    static bool writers_may_go_on(Value word) { return (word & writes_left_mask) != 0; }
    // Grows with each write, and each change of the ownership.
    static uint32_t version(Value word) { return static_cast<uint32_t>(word / version_one); }

    // Refuses new latches. True: nobody holds one.
    bool make_busy() { return !latched(word_.fetch_or(busy, std::memory_order_acq_rel)); }
    // Sets the ownership and ends busy and recalled. The frame must be unlatched, or its ownership only grows.
    void open(Value ownership) {
        Value seen = word_.load(std::memory_order_relaxed);
        while (!word_.compare_exchange_weak(
            seen, ((seen & ~(ownership_mask | busy | recalled | writes_left_mask)) | ownership) + version_one,
            std::memory_order_acq_rel)) {
        }
    }

    // Whether an optimistic reader that saw `before` may trust what it copied.
    bool unchanged_since(Value before) const {
        thread_fence(std::memory_order_acquire);
        constexpr Value irrelevant = pins_mask | recalled | writes_left_mask;
        return ((word_.load(std::memory_order_relaxed) ^ before) & ~irrelevant) == 0;
    }

  private:
    Atomic<Value> word_{0};
};

}  // namespace tarn
