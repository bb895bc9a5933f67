// FramePool: this host's frames. One arena of pages in a memfd, one header each, and the list of the free ones.
//
// The arena is a memfd so that it can be registered with the kernel, mapped by others, and outlive the process. Huge
// pages back it where the system allows. Any thread may take and give frames.
#pragma once

#include <memory>
#include <span>

#include "tiers/dram/frame.hpp"
#include "utils/mapping.hpp"
#include "utils/result.hpp"
#include "utils/spinlock.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class FramePool {
  public:
    // Reserves and touches the memory at once, so that a shortage shows at start. Errors: io.
    static Result<std::unique_ptr<FramePool>> create(size_t frame_count);

    size_t frame_count() const { return frame_count_; }
    size_t free_count() const { return free_count_.load(std::memory_order_relaxed); }
    std::span<std::byte> arena() const { return arena_.bytes(); }

    Frame& frame(FrameId id) {
        TARN_ASSERT(id < frame_count_);
        return frames_[id];
    }
    FrameId id_of(const Frame& frame) const { return static_cast<FrameId>(&frame - frames_); }
    FrameId id_of(const std::byte* page) const {
        const auto offset = static_cast<size_t>(page - arena_.bytes().data());
        TARN_ASSERT(offset % page_size == 0 && offset / page_size < frame_count_);
        return static_cast<FrameId>(offset / page_size);
    }
    std::byte* bytes(FrameId id) {
        TARN_ASSERT(id < frame_count_);
        return arena_.bytes().data() + size_t{id} * page_size;
    }

    // Takes a free frame, unless fewer than `leave` would stay: no_frame. The first use is set.
    FrameId try_take(FrameUse use, size_t leave);
    // Ends a use; the frame is free when that was its last.
    // True: the frame became free.
    bool release(FrameId id, FrameUse use);

  private:
    FramePool() = default;

    UniqueFd memfd_;
    Mapping arena_;
    Mapping headers_;
    Frame* frames_ = nullptr;
    size_t frame_count_ = 0;

    SpinLock free_lock_;
    FrameId first_free_ = no_frame;
    std::atomic<size_t> free_count_{0};
};

}  // namespace tarn
