// Replacement: which frames to give up, by access epochs and sampling (ScaleStore).
//
// A frame remembers the epoch of its last use; a use stores it only when it changed, so hot frames stay in every CPU's
// cache unwritten. The epoch grows with every tenth of the pool that is taken anew. Victims are the frames that a
// clock hand passes whose epoch lies in the oldest tenth of a sample.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "tiers/dram/frame_pool.hpp"

namespace tarn {

class Replacement {
  public:
    explicit Replacement(FramePool& pool) : pool_(pool), step_(std::max<size_t>(1, pool.frame_count() / 10)) {}

    void touch(Frame& frame) const {
        const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
        if (frame.access_epoch.load(std::memory_order_relaxed) != epoch)
            frame.access_epoch.store(epoch, std::memory_order_relaxed);
    }
    // With each frame that is filled.
    void count_fill() {
        if (fills_.fetch_add(1, std::memory_order_relaxed) % step_ == step_ - 1)
            epoch_.fetch_add(1, std::memory_order_relaxed);
    }

    // Calls visit(FrameId) -> bool for up to `count` victims; false says that this one was none, and does not count.
    // Gives up after one round of the hand.
    template <class Visitor>
    size_t pick(size_t count, Visitor&& visit) {
        const uint32_t threshold = oldest_tenth();
        size_t picked = 0;
        for (size_t i = 0; i < pool_.frame_count() && picked < count; ++i) {
            const auto id = static_cast<FrameId>(hand_.fetch_add(1, std::memory_order_relaxed) % pool_.frame_count());
            Frame& frame = pool_.frame(id);
            if (frame.uses.load(std::memory_order_relaxed) == 0) continue;
            if (static_cast<int32_t>(frame.access_epoch.load(std::memory_order_relaxed) - threshold) > 0) continue;
            if (visit(id)) ++picked;
        }
        return picked;
    }

  private:
    static constexpr size_t sample_size = 64;

    // Epochs wrap; they are compared by their distance from now.
    uint32_t oldest_tenth() {
        const uint32_t now = epoch_.load(std::memory_order_relaxed);
        std::array<uint32_t, sample_size> ages;
        size_t count = 0;
        for (size_t tries = 0; tries < sample_size * 4 && count < sample_size; ++tries) {
            const uint64_t random = mix64(random_.fetch_add(1, std::memory_order_relaxed));
            const Frame& frame = pool_.frame(static_cast<FrameId>(random % pool_.frame_count()));
            if (frame.uses.load(std::memory_order_relaxed) == 0) continue;
            ages[count++] = now - frame.access_epoch.load(std::memory_order_relaxed);
        }
        if (count == 0) return now;
        const auto tenth = ages.begin() + static_cast<ptrdiff_t>(count - 1 - count / 10);
        std::nth_element(ages.begin(), tenth, ages.begin() + static_cast<ptrdiff_t>(count));
        return now - *tenth;
    }

    FramePool& pool_;
    size_t step_;
    std::atomic<uint32_t> epoch_{1};
    std::atomic<size_t> fills_{0};
    std::atomic<size_t> hand_{0};
    std::atomic<uint64_t> random_{0};
};

}  // namespace tarn
