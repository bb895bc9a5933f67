#include "tiers/dram/frame_pool.hpp"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <new>

namespace tarn {

Result<std::unique_ptr<FramePool>> FramePool::create(size_t frame_count) {
    TARN_ASSERT(frame_count > 0 && frame_count < no_frame);
    std::unique_ptr<FramePool> pool(new FramePool);
    pool->frame_count_ = frame_count;
    pool->memfd_ = UniqueFd(::memfd_create("tarn-arena", MFD_CLOEXEC));
    if (!pool->memfd_) return fail(Errc::io, errno, "dram.arena: memfd_create");
    const size_t arena_size = frame_count * page_size;
    if (::ftruncate(pool->memfd_.get(), static_cast<off_t>(arena_size)) != 0)
        return fail(Errc::io, errno, "dram.arena: ftruncate");
    TRY(pool->arena_, Mapping::create(arena_size, pool->memfd_.get()));
    TRY(pool->headers_, Mapping::create(frame_count * sizeof(Frame)));
    // Huge pages are a gain, not a need: the calls may be refused.
    ::madvise(pool->arena_.bytes().data(), arena_size, MADV_HUGEPAGE);
    ::madvise(pool->headers_.bytes().data(), frame_count * sizeof(Frame), MADV_HUGEPAGE);
    if (::madvise(pool->arena_.bytes().data(), arena_size, MADV_POPULATE_WRITE) != 0)
        return fail(Errc::io, errno, "dram.arena: memory is short");

    pool->frames_ = reinterpret_cast<Frame*>(pool->headers_.bytes().data());
    for (size_t i = frame_count; i-- > 0;) {
        Frame* const frame = new (&pool->frames_[i]) Frame;
        frame->next.store(pool->first_free_, std::memory_order_relaxed);
        pool->first_free_ = static_cast<FrameId>(i);
    }
    pool->free_count_.store(frame_count, std::memory_order_relaxed);
    return pool;
}

FrameId FramePool::try_take(FrameUse use, size_t leave) {
    const std::lock_guard guard(free_lock_);
    const size_t free = free_count_.load(std::memory_order_relaxed);
    if (free <= leave) return no_frame;
    const FrameId id = first_free_;
    Frame& frame = frames_[id];
    first_free_ = frame.next.load(std::memory_order_relaxed);
    free_count_.store(free - 1, std::memory_order_relaxed);
    TARN_ASSERT(frame.uses.load(std::memory_order_relaxed) == 0);
    frame.uses.store(use, std::memory_order_relaxed);
    return id;
}

bool FramePool::release(FrameId id, FrameUse use) {
    Frame& released = frame(id);
    const uint8_t before = released.uses.fetch_and(static_cast<uint8_t>(~use), std::memory_order_acq_rel);
    TARN_ASSERT((before & use) != 0);
    if (before != use) return false;
    TARN_ASSERT(!released.cached.load(std::memory_order_relaxed) && !released.home_dirty && !released.storing);
    TARN_ASSERT(!FrameWord::latched(released.word.load()));
    released.dirty.store(0, std::memory_order_relaxed);
    released.writing.store(0, std::memory_order_relaxed);
    released.zeroed.store(false, std::memory_order_relaxed);
    released.broken.store(false, std::memory_order_relaxed);
    const std::lock_guard guard(free_lock_);
    released.next.store(first_free_, std::memory_order_relaxed);
    first_free_ = id;
    free_count_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

}  // namespace tarn
