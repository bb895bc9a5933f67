// FrameSet: a set of frames that any thread may add to and remove from: one bit a frame, and one bit for each word of
// those, so that walking a set with few members is cheap however large the pool.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "tiers/page.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class FrameSet {
  public:
    explicit FrameSet(size_t frame_count)
        : word_count_((frame_count + 63) / 64),
          summary_count_((word_count_ + 63) / 64),
          words_(std::make_unique<Atomic<uint64_t>[]>(word_count_)),
          summary_(std::make_unique<Atomic<uint64_t>[]>(summary_count_)) {}

    // Both bits are looked at: another thread may have set the first one only a moment ago, and not yet the second. Who
    // removes a frame and then looks whether it should be there, and who changes that and then adds it: one of them
    // sees the other. Hence the order of the look at the first bit, too.
    void add(FrameId id) {
        Atomic<uint64_t>& word = words_[id / 64];
        Atomic<uint64_t>& summary = summary_[id / 4096];
        const uint64_t bit = uint64_t{1} << (id % 64);
        const uint64_t summary_bit = uint64_t{1} << (id / 64 % 64);
        if ((word.load(std::memory_order_seq_cst) & bit) == 0) word.fetch_or(bit, std::memory_order_seq_cst);
        if ((summary.load(std::memory_order_seq_cst) & summary_bit) == 0)
            summary.fetch_or(summary_bit, std::memory_order_seq_cst);
    }
    void remove(FrameId id) { words_[id / 64].fetch_and(~(uint64_t{1} << (id % 64)), std::memory_order_seq_cst); }

    bool has(FrameId id) const { return (words_[id / 64].load(std::memory_order_relaxed) >> (id % 64) & 1) != 0; }

    // Visits every frame that was in the set before the call and is not removed meanwhile.
    template <class Visitor>
    void for_each(Visitor&& visit) {
        bool found_empty = false;
        {
            const std::shared_lock walking(walkers_);
            for_each_group([&](size_t w) {
                uint64_t bits = words_[w].load(std::memory_order_seq_cst);
                found_empty |= bits == 0;
                for (; bits != 0; bits &= bits - 1)
                    visit(static_cast<FrameId>(w * 64 + static_cast<size_t>(std::countr_zero(bits))));
            });
        }
        if (!found_empty || !walkers_.try_lock()) return;
        const std::lock_guard alone(walkers_, std::adopt_lock);
        forget_empty();
    }

  private:
    // The words that may have members.
    template <class Visitor>
    void for_each_group(Visitor&& visit) const {
        for (size_t s = 0; s < summary_count_; ++s)
            for (uint64_t groups = summary_[s].load(std::memory_order_seq_cst); groups != 0; groups &= groups - 1)
                visit(s * 64 + static_cast<size_t>(std::countr_zero(groups)));
    }

    // Clears the bits of empty words. An add may come between the look at a word and the clearing of its bit: then the
    // bit is set again. No walk runs meanwhile, as it could miss the added frame.
    void forget_empty() {
        for_each_group([&](size_t w) {
            if (words_[w].load(std::memory_order_seq_cst) != 0) return;
            const uint64_t bit = uint64_t{1} << (w % 64);
            summary_[w / 64].fetch_and(~bit, std::memory_order_seq_cst);
            if (words_[w].load(std::memory_order_seq_cst) != 0)
                summary_[w / 64].fetch_or(bit, std::memory_order_seq_cst);
        });
    }

    size_t word_count_;
    size_t summary_count_;
    std::unique_ptr<Atomic<uint64_t>[]> words_;
    std::unique_ptr<Atomic<uint64_t>[]> summary_;
    SharedMutex walkers_;
};

}  // namespace tarn
