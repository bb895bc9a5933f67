#include "coherence/pages/held_frames.hpp"

#include <algorithm>
#include <utility>

#include "coherence/pages/page_provider.hpp"
#include "utils/clock.hpp"

namespace tarn {

using protocol::Ownership;

Frames::Quiet HeldFrames::quiesce(PageId, FrameId id, bool recalled) {
    Frame& frame = frame_of(id);
    const Loop* const loop = Loop::current();
    if (recalled && lease_.writes != 0 && loop && !loop->ending() && parts_.pages.is_being_written(id)) {
        frame.word.recall(std::min(lease_.writes, FrameWord::writes_left_max));
        return Quiet::leased;
    }
    return frame.word.make_busy() ? Quiet::now : Quiet::later;
}

void HeldFrames::keep_lease(PageId page, FrameId frame) {
    const uint32_t version = FrameWord::version(frame_of(frame).word.load());
    Loop::current()->spawn(yield_lease({.page = page, .frame = frame, .version = version}));
}

// The page goes to the host that waits for it as soon as a turn of this loop passes without a local write to it, or
// when the WriteLease is used up.
Task<> HeldFrames::yield_lease(Recalled recalled) {
    Frame& frame = frame_of(recalled.frame);
    const uint64_t end_ns = monotonic_ns() + uint64_t{lease_.time_us} * 1000;
    co_await Yield(*Loop::current());  // a whole turn lies between one look and the next
    for (bool goes_on = true; goes_on;) {
        co_await Yield(*Loop::current());
        Stripes::Turn turn(parts_.stripes, recalled.page);
        if (parts_.stripes.abandoned()) co_return;
        const FrameWord::Value word = frame.word.load();
        const uint32_t version = FrameWord::version(word);
        goes_on = std::exchange(recalled.version, version) != version && FrameWord::writers_may_go_on(word) &&
                  monotonic_ns() < end_ns;
        if (goes_on)
            turns_leased_.fetch_add(1, std::memory_order_relaxed);
        else if (frame.word.make_busy())
            turn.step(quiesced(frame, recalled.page));
    }
}

void HeldFrames::begin_writing(FrameId id) {
    // In this order: the process may be killed between any two of these, and no sector may be in neither mask.
    Frame& frame = frame_of(id);
    frame.writing.fetch_or(frame.dirty.load(std::memory_order_relaxed), std::memory_order_release);
    frame.dirty.store(0, std::memory_order_release);
}

void HeldFrames::clear_writing(FrameId id) {
    Frame& frame = frame_of(id);
    frame.writing.store(0, std::memory_order_relaxed);
    parts_.pages.forget_dirty_if_clean(frame);
}

void HeldFrames::clear_dirty(FrameId id) {
    frame_of(id).dirty.store(0, std::memory_order_relaxed);
    clear_writing(id);
}

void HeldFrames::mark_dirty(FrameId id) {
    parts_.pages.mark_dirty(frame_of(id), all_sectors);
}

void HeldFrames::set_access(PageId page, FrameId id, Ownership ownership, uint32_t lost) {
    Frame& frame = frame_of(id);
    if (ownership == Ownership::none) {
        if (frame.cached.load(std::memory_order_relaxed)) {
            parts_.pages.index().erase(frame);
            frame.cached.store(false, std::memory_order_relaxed);
            if (frame.writable.load(std::memory_order_relaxed))
                parts_.writable_share.begin_leaving(parts_.membership.home_of(page));
        }
        frame.word.open(FrameWord::none);
        return;
    }
    if (!frame.cached.load(std::memory_order_relaxed)) {
        TARN_ASSERT(!parts_.pages.index().find_exactly(page));
        frame.page.store(page.value, std::memory_order_release);
        parts_.pages.index().insert(frame);
        frame.cached.store(true, std::memory_order_relaxed);
        parts_.pages.replacement().touch(frame);
        if (frame.writable.load(std::memory_order_relaxed)) parts_.writable_share.stay(parts_.membership.home_of(page));
    }
    TARN_ASSERT(frame.page_id() == page);
    frame.lost.store(lost, std::memory_order_relaxed);
    frame.word.open(ownership == Ownership::exclusive ? FrameWord::writable : FrameWord::shared);
    count_writable(frame, ownership == Ownership::exclusive);
}

// Counts in the WritableShare; only pages of other homes, while the frame still has its page.
void HeldFrames::count_writable(Frame& frame, bool writable) {
    const bool before = frame.writable.load(std::memory_order_relaxed);
    if (!before && !writable) return;
    const HostId home = parts_.membership.home_of(frame.page_id());
    if (home == parts_.membership.self()) return;
    frame.writable.store(writable, std::memory_order_relaxed);
    if (!writable) return parts_.writable_share.leave(home);
    if (!before) parts_.writable_share.enter(home);
    if (parts_.writable_share.is_crowded(home)) parts_.provider.relieve();
}

bool HeldFrames::release(FrameId id) {
    Frame& frame = frame_of(id);
    TARN_ASSERT(!frame.cached.load(std::memory_order_relaxed));
    frame.dirty.store(0, std::memory_order_relaxed);
    frame.writing.store(0, std::memory_order_relaxed);
    parts_.pages.dirty_frames().remove(id);
    if (frame.writable.load(std::memory_order_relaxed)) {
        parts_.writable_share.stay(parts_.membership.home_of(frame.page_id()));
        count_writable(frame, false);
    }
    return parts_.pool.release(id, use_holder);
}

}  // namespace tarn
