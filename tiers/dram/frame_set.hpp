// FrameSet: a set of frames that any thread may add to and remove from: one bit a frame, and one bit for each word of
// those, so that walking a set with few members is cheap however large the pool.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "tiers/page.hpp"

namespace tarn {

class FrameSet {
  public:
    explicit FrameSet(size_t frame_count)
        : word_count_((frame_count + 63) / 64),
          summary_count_((word_count_ + 63) / 64),
          words_(std::make_unique<std::atomic<uint64_t>[]>(word_count_)),
          summary_(std::make_unique<std::atomic<uint64_t>[]>(summary_count_)) {}

    void add(FrameId id) {
        std::atomic<uint64_t>& word = words_[id / 64];
        const uint64_t bit = uint64_t{1} << (id % 64);
        if ((word.load(std::memory_order_relaxed) & bit) != 0) return;
        word.fetch_or(bit, std::memory_order_seq_cst);
        summary_[id / 4096].fetch_or(uint64_t{1} << (id / 64 % 64), std::memory_order_seq_cst);
    }
    void remove(FrameId id) { words_[id / 64].fetch_and(~(uint64_t{1} << (id % 64)), std::memory_order_seq_cst); }

    bool has(FrameId id) const { return (words_[id / 64].load(std::memory_order_relaxed) >> (id % 64) & 1) != 0; }

    // Visits every frame that was in the set before the call and is not removed meanwhile.
    template <class Visitor>
    void for_each(Visitor&& visit) {
        for (size_t s = 0; s < summary_count_; ++s) {
            for (uint64_t groups = summary_[s].load(std::memory_order_seq_cst); groups != 0; groups &= groups - 1) {
                const size_t w = s * 64 + static_cast<size_t>(std::countr_zero(groups));
                uint64_t bits = words_[w].load(std::memory_order_seq_cst);
                if (bits == 0) {
                    forget_empty(s, w);
                    continue;
                }
                for (; bits != 0; bits &= bits - 1)
                    visit(static_cast<FrameId>(w * 64 + static_cast<size_t>(std::countr_zero(bits))));
            }
        }
    }

  private:
    // The summary's bit may be dropped only if the word is still empty afterwards: an add in between sets it again.
    void forget_empty(size_t s, size_t w) {
        const uint64_t bit = uint64_t{1} << (w % 64);
        summary_[s].fetch_and(~bit, std::memory_order_seq_cst);
        if (words_[w].load(std::memory_order_seq_cst) != 0) summary_[s].fetch_or(bit, std::memory_order_seq_cst);
    }

    size_t word_count_;
    size_t summary_count_;
    std::unique_ptr<std::atomic<uint64_t>[]> words_;
    std::unique_ptr<std::atomic<uint64_t>[]> summary_;
};

}  // namespace tarn
