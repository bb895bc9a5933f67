// WriteReceipts: which pages of a request it has changed already, in memory that outlives the process. Whoever goes on
// with the request after a kill changes none of them again: another write of the page may have come meanwhile.
//
// A page's receipt is written while nobody else can write the page. Until then the write is in a WriteStage, which
// names the receipt: who finishes the write writes the receipt, too. So a page was changed and has its receipt, or
// neither.
//
// The bits stand for a window of the request's pages; all pages before it have been changed. One task at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "tiers/dram/write_stage.hpp"
#include "utils/assert.hpp"

namespace tarn {

class WriteReceipts {
  public:
    static constexpr size_t window_pages = 576;

    // Of a new request. number: names it in stages; not 0.
    void begin(uint32_t number) {
        number_ = number;
        move_window(0);
    }
    uint32_t number() const { return number_; }

    bool has(uint64_t page) const {
        const uint64_t window = window_.load(std::memory_order_relaxed);
        if (page < first_of(window)) return true;
        const uint64_t at = page - first_of(window);
        return at < window_pages && (word(window, at).load(std::memory_order_relaxed) & bit_of(at)) != 0;
    }
    void add(uint64_t page) {
        const uint64_t window = window_.load(std::memory_order_relaxed);
        if (page < first_of(window)) return;
        const uint64_t at = page - first_of(window);
        TARN_ASSERT(at < window_pages);
        std::atomic<uint64_t>& bits = word(window, at);
        bits.store(bits.load(std::memory_order_relaxed) | bit_of(at), std::memory_order_release);
    }
    // All pages before this one have been changed, and the session has noted it.
    void move_window(uint64_t first) {
        const uint64_t bank = 1 - (window_.load(std::memory_order_relaxed) & 1);
        for (std::atomic<uint64_t>& bits : banks_[bank]) bits.store(0, std::memory_order_relaxed);
        for (Began& each : began_) each.home_plus_one.store(0, std::memory_order_relaxed);
        window_.store(first << 1 | bank, std::memory_order_release);
    }
    // What the home of some of the pages was known by before the first of them changed. Once the process was killed,
    // nobody else can say it of pages that have a receipt; and if the home has lost them since, a flush must fail.
    void note_began(HostId home, uint64_t verifier) {
        for (Began& each : began_) {
            const uint32_t noted = each.home_plus_one.load(std::memory_order_relaxed);
            if (noted == home + 1u) return;
            if (noted != 0) continue;
            each.verifier.store(verifier, std::memory_order_relaxed);
            each.home_plus_one.store(home + 1u, std::memory_order_release);
            return;
        }
        TARN_ASSERT(false);  // a window lies in two ranges at most
    }
    // 0: none of its pages changed.
    uint64_t began(HostId home) const {
        for (const Began& each : began_)
            if (each.home_plus_one.load(std::memory_order_acquire) == home + 1u)
                return each.verifier.load(std::memory_order_relaxed);
        return 0;
    }
    uint64_t window() const { return first_of(window_.load(std::memory_order_relaxed)); }

  private:
    static constexpr uint64_t first_of(uint64_t window) { return window >> 1; }
    static constexpr uint64_t bit_of(uint64_t at) { return uint64_t{1} << at % 64; }
    std::atomic<uint64_t>& word(uint64_t window, uint64_t at) { return banks_[window & 1][at / 64]; }
    const std::atomic<uint64_t>& word(uint64_t window, uint64_t at) const { return banks_[window & 1][at / 64]; }

    std::atomic<uint64_t> window_;  // its first page, and which bank is its
    uint32_t number_;
    struct Began {
        std::atomic<uint32_t> home_plus_one;
        std::atomic<uint64_t> verifier;
    };
    std::array<Began, 2> began_;
    std::array<std::array<std::atomic<uint64_t>, window_pages / 64>, 2> banks_;
};

// The receipt of one page. Empty: nobody wants one.
class PageReceipt {
  public:
    PageReceipt() = default;
    PageReceipt(WriteReceipts* receipts, uint64_t page) : receipts_(receipts), page_(page) {}

    explicit operator bool() const { return receipts_ != nullptr; }
    // As a stage names it; 0: empty.
    uint64_t name() const { return receipts_ ? uint64_t{receipts_->number()} << 32 | page_ : 0; }
    void add() {
        if (receipts_) receipts_->add(page_);
    }

    // The write lies in this stage until the frame is on record as this page's, and the receipt until then, too.
    void await(WriteStage& stage) { stage_ = &stage; }
    bool is_awaited() const { return stage_ != nullptr; }
    // It is.
    void settle() {
        add();
        end_stage();
    }
    void end_stage() {
        WriteStage& stage = *std::exchange(stage_, nullptr);
        stage.pending.store(WriteStage::Pending::nothing, std::memory_order_release);
        stage.taken.store(false, std::memory_order_release);
    }

  private:
    WriteReceipts* receipts_ = nullptr;
    uint64_t page_ = 0;
    WriteStage* stage_ = nullptr;
};

}  // namespace tarn
