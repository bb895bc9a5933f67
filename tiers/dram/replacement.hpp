// Replacement: which frames to give up, by access epochs and sampling (ScaleStore).
//
// A frame remembers the epoch of its last use; a use stores it only when it changed, so hot frames stay in every CPU's
// cache unwritten. The epoch grows with every tenth of the pool that is taken anew. Victims are the frames that a
// clock hand passes whose epoch lies in the oldest tenth of a sample.
#pragma once

#include <algorithm>
#include <array>

#include "tiers/dram/frame_pool.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class Replacement {
  public:
    explicit Replacement(FramePool& pool) : pool_(pool), step_(std::max<size_t>(1, pool.frame_count() / 10)) {}

    void touch(Frame& frame) const {
        const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
        if (frame.access_epoch.load(std::memory_order_relaxed) != epoch)
            frame.access_epoch.store(epoch, std::memory_order_relaxed);
    }
    // How long ago it was used, in access epochs.
    uint32_t age_of(const Frame& frame) const {
        return epoch_.load(std::memory_order_relaxed) - frame.access_epoch.load(std::memory_order_relaxed);
    }
    void set_age(Frame& frame, uint32_t age) const {
        frame.access_epoch.store(epoch_.load(std::memory_order_relaxed) - age, std::memory_order_relaxed);
    }
    // What is at least this old was given up when frames were last looked for.
    uint32_t victim_age() const { return victim_age_.load(std::memory_order_relaxed); }
    // With each frame that is filled.
    void count_fill() {
        if (fills_.fetch_add(1, std::memory_order_relaxed) % step_ == step_ - 1)
            epoch_.fetch_add(1, std::memory_order_relaxed);
    }

    // The youngest epoch among the oldest tenths of the frames that may be victims.
    struct Threshold {
        uint32_t epoch;
    };
    // By a sample of the frames.
    Threshold threshold_of(unsigned tenths) {
        const uint32_t threshold = oldest(tenths);
        victim_age_.store(epoch_.load(std::memory_order_relaxed) - threshold, std::memory_order_relaxed);
        return {threshold};
    }
    // Calls visit(FrameId) -> bool for up to `count` victims, last used in the threshold's epoch or before. A victim
    // for which visit returns false does not count. Gives up after one round of the hand.
    template <class Visitor>
    size_t pick(size_t count, Threshold threshold, Visitor&& visit) {
        size_t picked = 0;
        for (size_t i = 0; i < pool_.frame_count() && picked < count; ++i) {
            const auto id = static_cast<FrameId>(hand_.fetch_add(1, std::memory_order_relaxed) % pool_.frame_count());
            Frame& frame = pool_.frame(id);
            if (!may_be_victim(frame)) continue;
            if (static_cast<int32_t>(frame.access_epoch.load(std::memory_order_relaxed) - threshold.epoch) > 0)
                continue;
            if (visit(id)) ++picked;
        }
        return picked;
    }

  private:
    static constexpr size_t sample_size = 64;

    // Not free, and not on its way: a frame that waits for another host's answer must not count among the oldest, or
    // nothing else would be looked at until the answer is there, which may wait for a frame.
    static bool may_be_victim(const Frame& frame) {
        const uint8_t uses = frame.uses.load(std::memory_order_relaxed);
        return uses != 0 && (uses != use_holder || frame.cached.load(std::memory_order_relaxed));
    }

    // Epochs wrap; they are compared by their distance from now.
    uint32_t oldest(unsigned tenths) {
        const uint32_t now = epoch_.load(std::memory_order_relaxed);
        std::array<uint32_t, sample_size> ages;
        size_t count = 0;
        for (size_t tries = 0; tries < sample_size * 4 && count < sample_size; ++tries) {
            const uint64_t random = mix64(random_.fetch_add(1, std::memory_order_relaxed));
            const Frame& frame = pool_.frame(static_cast<FrameId>(random % pool_.frame_count()));
            if (!may_be_victim(frame)) continue;
            ages[count++] = now - frame.access_epoch.load(std::memory_order_relaxed);
        }
        if (count == 0) return now;
        if (tenths >= 10) return now;
        const auto youngest = ages.begin() + static_cast<ptrdiff_t>(count - 1 - count * tenths / 10);
        std::nth_element(ages.begin(), youngest, ages.begin() + static_cast<ptrdiff_t>(count));
        return now - *youngest;
    }

    FramePool& pool_;
    size_t step_;
    Atomic<uint32_t> victim_age_{0};
    Atomic<uint32_t> epoch_{1};
    Atomic<size_t> fills_{0};
    Atomic<size_t> hand_{0};
    Atomic<uint64_t> random_{0};
};

}  // namespace tarn
