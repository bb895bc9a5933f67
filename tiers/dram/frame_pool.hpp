// FramePool: this host's frames: the pages and headers of an arena, and lists of the free ones, one for each NUMA node.
// Any thread may take and give frames; it gets those of its own node as long as there are some.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tiers/dram/arena.hpp"
#include "tiers/dram/nodes.hpp"
#include "utils/atomic.hpp"
#include "utils/result.hpp"
#include "utils/spinlock.hpp"

namespace tarn {

class FramePool {
  public:
    static Result<std::unique_ptr<FramePool>> create(size_t frame_count);  // Errors: of Arena::create
    // In an adopted arena, frames that are recorded as held and frames of home's bytes are taken; all others are free.
    explicit FramePool(std::unique_ptr<Arena> arena, const Nodes& nodes = Nodes());

    size_t frame_count() const { return frame_count_; }
    size_t free_count() const { return free_count_.load(std::memory_order_relaxed); }
    Arena& arena() const { return *arena_; }
    std::span<std::byte> bytes() const { return bytes_; }
    FrameRecord& record(FrameId id) { return records_[id]; }

    Frame& frame(FrameId id) {
        TARN_ASSERT(id < frame_count_);
        return frames_[id];
    }
    FrameId id_of(const Frame& frame) const { return static_cast<FrameId>(&frame - frames_); }
    FrameId id_of(const std::byte* page) const {
        const auto offset = static_cast<size_t>(page - bytes_.data());
        TARN_ASSERT(offset % page_size == 0 && offset / page_size < frame_count_);
        return static_cast<FrameId>(offset / page_size);
    }
    std::byte* bytes(FrameId id) {
        TARN_ASSERT(id < frame_count_);
        return bytes_.data() + size_t{id} * page_size;
    }

    // Takes a free frame, unless fewer than `leave` would stay: no_frame. The first use is set.
    FrameId try_take(FrameUse use, size_t leave);
    // Ends a use. True: it was the last, and the frame is free now.
    bool release(FrameId id, FrameUse use);

  private:
    void adopt(FrameId id);
    void put_free(FrameId id);

    std::unique_ptr<Arena> arena_;
    std::span<std::byte> bytes_;
    FrameRecord* records_;
    Frame* frames_;
    size_t frame_count_;

    const Nodes nodes_;
    SpinLock free_lock_;
    std::vector<FrameId> first_free_;  // of each node
    Atomic<size_t> free_count_{0};
};

}  // namespace tarn
