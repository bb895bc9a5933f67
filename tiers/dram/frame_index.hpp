// FrameIndex: from a page to the frame that caches it, read without locks.
//
// Chains through the frame headers. Writers hold the latch of the page's stripe; buckets are grouped by stripe, so no
// two writers meet in a bucket. A reader that walks a chain while it changes may end up in another one or miss its
// page: it then takes the cold path, which looks again under the latch. What a reader finds is proved by the frame's
// word (frame_word.hpp), never by the table alone; the walk is bounded.
//
// The buckets of a block's pages lie in one cache line, so that a run of pages costs one miss of the CPU's caches for
// all of a block. Within the line they are turned by the block's hash: pages at a stride do not meet in one bucket.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>

#include "tiers/dram/frame_pool.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class FrameIndex {
  public:
    static constexpr unsigned block_bits = 4;  // 16 pages, 64 KiB
    static constexpr size_t block_pages = 1 << block_bits;

    // link: the member of Frame that chains this table; a frame may be in two tables at once.
    FrameIndex(FramePool& pool, unsigned stripe_bits, Atomic<FrameId> Frame::* link)
        : pool_(pool), link_(link), stripe_bits_(stripe_bits), bucket_count_(std::bit_ceil(2 * pool.frame_count())) {
        // Twice as many buckets as frames: who shares a bucket costs the other one a miss of the CPU's caches.
        if (bucket_count_ < (block_pages << stripe_bits)) bucket_count_ = block_pages << stripe_bits;
        // In huge pages where that is possible: a random access then finds its bucket without a walk of page tables.
        const size_t size_bytes = bucket_count_ * sizeof(Bucket);  // a power of two
        buckets_.reset(static_cast<Bucket*>(std::aligned_alloc(std::min(size_bytes, huge_page_size), size_bytes)));
        TARN_ASSERT(buckets_);
        if (size_bytes >= huge_page_size) ::madvise(buckets_.get(), size_bytes, MADV_HUGEPAGE);
        for (size_t i = 0; i < bucket_count_; ++i) new (&buckets_[i]) Bucket(no_frame);
    }

    // The stripe of a page: pages of one 64 KiB block share it.
    unsigned stripe_of(PageId page) const { return stripe_of(page, stripe_bits_); }
    static unsigned stripe_of(PageId page, unsigned stripe_bits) {
        return static_cast<unsigned>(mix64(page.value >> block_bits) & ((1u << stripe_bits) - 1));
    }

    // Ahead of a search: first the buckets of the page's block, then the header of the frame that the page's names.
    void prefetch(PageId page) const { __builtin_prefetch(&bucket_of(page)); }
    void prefetch_frame(PageId page) const {
        const FrameId id = bucket_of(page).load(std::memory_order_relaxed);
        if (id != no_frame) __builtin_prefetch(&pool_.frame(id));
    }

    // A frame that was bound to the page a moment ago, or nullptr. The caller checks its word.
    Frame* find(PageId page) const {
        FrameId id = bucket_of(page).load(std::memory_order_acquire);
        // Most likely it is the first: its bytes come from memory beside its header, not after it.
        if (id != no_frame) __builtin_prefetch(pool_.bytes(id));
        for (unsigned hops = 0; id != no_frame && hops < hops_max; ++hops) {
            Frame& frame = pool_.frame(id);
            if (frame.page.load(std::memory_order_acquire) == page.value) return &frame;
            id = (frame.*link_).load(std::memory_order_acquire);
        }
        return nullptr;
    }

    // Under the latch of the page's stripe, from here on. The exact answer, however long the chain.
    Frame* find_exactly(PageId page) const {
        for (FrameId id = bucket_of(page).load(std::memory_order_relaxed); id != no_frame;) {
            Frame& frame = pool_.frame(id);
            if (frame.page.load(std::memory_order_relaxed) == page.value) return &frame;
            id = (frame.*link_).load(std::memory_order_relaxed);
        }
        return nullptr;
    }
    void insert(Frame& frame) {
        Bucket& bucket = bucket_of(frame.page_id());
        (frame.*link_).store(bucket.load(std::memory_order_relaxed), std::memory_order_relaxed);
        bucket.store(pool_.id_of(frame), std::memory_order_release);
    }
    void erase(Frame& frame) {
        const FrameId erased = pool_.id_of(frame);
        Atomic<FrameId>* link = &bucket_of(frame.page_id());
        for (FrameId id; (id = link->load(std::memory_order_relaxed)) != erased;) {
            TARN_ASSERT(id != no_frame);
            link = &(pool_.frame(id).*link_);
        }
        link->store((frame.*link_).load(std::memory_order_relaxed), std::memory_order_release);
    }

    // Every frame of the stripe.
    template <class Visitor>
    void for_each(unsigned stripe, Visitor&& visit) const {
        const size_t count = bucket_count_ >> stripe_bits_;
        for (size_t i = stripe * count; i < (stripe + 1) * count; ++i) {
            for (FrameId id = buckets_[i].load(std::memory_order_relaxed); id != no_frame;) {
                const Frame& frame = pool_.frame(id);
                visit(frame);
                id = (frame.*link_).load(std::memory_order_relaxed);
            }
        }
    }

  private:
    using Bucket = Atomic<FrameId>;
    static_assert(block_pages * sizeof(Bucket) == 64, "one cache line a block");
    struct Free {
        void operator()(Bucket* buckets) const { std::free(buckets); }
    };
    static constexpr size_t huge_page_size = 2 << 20;
    static constexpr unsigned hops_max = 32;

    Bucket& bucket_of(PageId page) const {
        const uint64_t hash = mix64(page.value >> block_bits);  // its lowest bits choose the stripe
        const size_t block_count = bucket_count_ >> stripe_bits_ >> block_bits;
        const size_t block = (size_t{stripe_of(page)} * block_count) + (hash >> stripe_bits_ & (block_count - 1));
        return buckets_[(block * block_pages) + ((page.value ^ hash >> (64 - block_bits)) % block_pages)];
    }

    FramePool& pool_;
    Atomic<FrameId> Frame::* link_;
    unsigned stripe_bits_;
    size_t bucket_count_;
    std::unique_ptr<Bucket[], Free> buckets_;
};

}  // namespace tarn
