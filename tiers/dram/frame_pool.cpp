#include "tiers/dram/frame_pool.hpp"

#include <mutex>
#include <new>

namespace tarn {

Result<std::unique_ptr<FramePool>> FramePool::create(size_t frame_count) {
    TRY(std::unique_ptr<Arena> arena, Arena::create(frame_count));
    return std::make_unique<FramePool>(std::move(arena));
}

FramePool::FramePool(std::unique_ptr<Arena> arena, const Nodes& nodes)
    : arena_(std::move(arena)),
      bytes_(arena_->bytes()),
      records_(arena_->records()),
      frames_(arena_->frames()),
      frame_count_(arena_->frame_count()),
      nodes_(nodes),
      first_free_(nodes_.count(), no_frame) {
    for (size_t i = frame_count_; i-- > 0;) {
        const auto id = static_cast<FrameId>(i);
        if (arena_->adopted()) adopt(id);
        if (frames_[i].uses.load(std::memory_order_relaxed) == 0) put_free(id);
    }
}

// Latches, chains, reads and writes under way died with their process.
void FramePool::adopt(FrameId id) {
    Frame& adopted = frames_[id];
    new (&adopted.word) FrameWord;
    adopted.next.store(no_frame, std::memory_order_relaxed);
    adopted.home_next.store(no_frame, std::memory_order_relaxed);
    adopted.cached.store(false, std::memory_order_relaxed);
    adopted.writable.store(false, std::memory_order_relaxed);
    adopted.storing = Storing::no;
    uint8_t uses = adopted.uses.load(std::memory_order_relaxed) & use_home;
    const FrameRecord::State& state = records_[id].state();
    // A frame that is both is both for one page.
    const bool agrees = uses == 0 || state.page == adopted.page.load(std::memory_order_relaxed);
    if (state.role != FrameRecord::Role::none && agrees) {
        uses |= use_holder;
        adopted.page.store(state.page, std::memory_order_relaxed);
        adopted.lost.store(state.lost, std::memory_order_relaxed);
    } else {
        records_[id].clear();
    }
    if ((uses & use_home) == 0) adopted.home_dirty = false;
    adopted.uses.store(uses, std::memory_order_relaxed);
}

void FramePool::put_free(FrameId id) {
    Frame& freed = frames_[id];
    freed.dirty.store(0, std::memory_order_relaxed);
    freed.writing.store(0, std::memory_order_relaxed);
    freed.zeroed.store(false, std::memory_order_relaxed);
    freed.broken.store(false, std::memory_order_relaxed);
    FrameId& first = first_free_[nodes_.part_of(id, frame_count_)];
    freed.next.store(first, std::memory_order_relaxed);
    first = id;
    free_count_.fetch_add(1, std::memory_order_relaxed);
}

FrameId FramePool::try_take(FrameUse use, size_t leave) {
    size_t node = nodes_.here();
    const std::lock_guard guard(free_lock_);
    const size_t free = free_count_.load(std::memory_order_relaxed);
    if (free <= leave) return no_frame;
    while (first_free_[node] == no_frame) node = (node + 1) % nodes_.count();
    const FrameId id = first_free_[node];
    Frame& frame = frames_[id];
    first_free_[node] = frame.next.load(std::memory_order_relaxed);
    free_count_.store(free - 1, std::memory_order_relaxed);
    TARN_ASSERT(frame.uses.load(std::memory_order_relaxed) == 0);
    frame.uses.store(use, std::memory_order_relaxed);
    return id;
}

bool FramePool::release(FrameId id, FrameUse use) {
    Frame& released = frame(id);
    if (use == use_holder) records_[id].clear();
    const uint8_t before = released.uses.fetch_and(static_cast<uint8_t>(~use), std::memory_order_acq_rel);
    TARN_ASSERT((before & use) != 0);
    if (before != use) return false;
    TARN_ASSERT(!released.cached.load(std::memory_order_relaxed) && !released.home_dirty &&
                released.storing == Storing::no);
    TARN_ASSERT(!FrameWord::latched(released.word.load()));
    const std::lock_guard guard(free_lock_);
    put_free(id);
    return true;
}

}  // namespace tarn
