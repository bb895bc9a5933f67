// FrameRecord: what a frame is held for, for the process that may adopt it.
//
// Two slots and one flip: a change is written into the slot that does not count, and counts from one store on. So a
// process that is killed at any instruction leaves the old state or the new one, never a mix.
//
// A state is recorded, or ends, before anybody is told of it. So a process that is killed has told nobody of more than
// is on record.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tiers/page.hpp"

namespace tarn {

struct FrameRecord {
    enum class Role : uint8_t {
        none,
        shared,
        exclusive,
        kept,  // the whole page, as the order `order` took it away, until its home has the bytes
    };
    struct State {
        uint64_t page = 0;
        Tenure tenure = 0;        // kept: with sequence, the position of the bytes
        Tenure order = 0;         // of kept bytes
        Tenure anchor_since = 0;  // of others: their home may lack the bytes of this tenure
        uint32_t sequence = 0;
        uint32_t lost = 0;
        uint32_t evict_id = 0;  // of the eviction that is under way, or 0
        Role role = Role::none;
        bool operator==(const State&) const = default;
    };

    const State& state() const { return slots_[current_.load(std::memory_order_relaxed) & 1]; }
    // One thread at a time: the one that steps the page's stripe, or has just taken the frame.
    void set(const State& state) {
        const uint32_t next = current_.load(std::memory_order_relaxed) + 1;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        slots_[next & 1] = state;
        current_.store(next, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    void clear() {
        if (state().role != Role::none) set({});
    }

  private:
    std::array<State, 2> slots_{};
    std::atomic<uint32_t> current_{0};
};

}  // namespace tarn
