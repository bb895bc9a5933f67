// Cache: what the protocol's actions do to frames, messages and operations that wait. All of it but what follows a step
// under the latch of the page's stripe.
#include <algorithm>
#include <cstring>
#include <utility>

#include "coherence/cache/cache.hpp"
#include "coherence/cache/flusher.hpp"
#include "coherence/cache/page_access.hpp"
#include "coherence/cache/page_provider.hpp"
#include "utils/clock.hpp"

namespace tarn {

using protocol::Action;
using protocol::Message;
using protocol::Ownership;

Frames::Quiet Cache::quiesce(PageId, FrameId id, bool recalled) {
    Frame& frame = pool_->frame(id);
    const Loop* const loop = Loop::current();
    if (recalled && lease_.writes != 0 && loop && !loop->ending() && pages_.is_being_written(id)) {
        frame.word.recall(std::min(lease_.writes, FrameWord::writes_left_max));
        return Quiet::leased;
    }
    return frame.word.make_busy() ? Quiet::now : Quiet::later;
}

DirtyMask Cache::unwritten_of(FrameId id) {
    const Frame& frame = pool_->frame(id);
    return frame.dirty.load(std::memory_order_relaxed) | frame.writing.load(std::memory_order_relaxed);
}

void Cache::keep_lease(PageId page, FrameId frame) {
    const uint32_t version = FrameWord::version(pool_->frame(frame).word.load());
    Loop::current()->spawn(yield_lease({.page = page, .frame = frame, .version = version}));
}

// The page goes to the host that waits for it as soon as a turn of this loop passes without a local write to it, or
// when the WriteLease is used up.
Task<> Cache::yield_lease(Recalled recalled) {
    Frame& frame = pool_->frame(recalled.frame);
    const uint64_t end_ns = monotonic_ns() + uint64_t{lease_.time_us} * 1000;
    co_await Yield(*Loop::current());  // a whole turn lies between one look and the next
    for (bool goes_on = true; goes_on;) {
        co_await Yield(*Loop::current());
        Deferred deferred;
        {
            StripeSlot& slot = slot_of(recalled.page);
            const std::lock_guard guard(slot.latch);
            if (abandoned()) co_return;
            const FrameWord::Value word = frame.word.load();
            const uint32_t version = FrameWord::version(word);
            goes_on = std::exchange(recalled.version, version) != version && FrameWord::writers_may_go_on(word) &&
                      monotonic_ns() < end_ns;
            if (goes_on)
                counters_.turns_leased.fetch_add(1, std::memory_order_relaxed);
            else if (frame.word.make_busy())
                step_latched(slot, quiesced(frame, recalled.page), deferred);
        }
        finish(deferred);
    }
}

void Cache::begin_writing(FrameId id) {
    // In this order: a process may end between any two of these, and no sector may be in neither mask.
    Frame& frame = pool_->frame(id);
    frame.writing.fetch_or(frame.dirty.load(std::memory_order_relaxed), std::memory_order_release);
    frame.dirty.store(0, std::memory_order_release);
}

void Cache::clear_writing(FrameId id) {
    Frame& frame = pool_->frame(id);
    frame.writing.store(0, std::memory_order_relaxed);
    pages_.forget_dirty_if_clean(frame);
}

void Cache::clear_dirty(FrameId id) {
    Frame& frame = pool_->frame(id);
    frame.dirty.store(0, std::memory_order_relaxed);
    frame.writing.store(0, std::memory_order_relaxed);
    pages_.forget_dirty_if_clean(frame);
}

void Cache::mark_dirty(FrameId id) {
    pages_.mark_dirty(pool_->frame(id), all_sectors);
}

uint32_t Cache::age_of(FrameId id) {
    return pages_.replacement().age_of(pool_->frame(id));
}

void Cache::set_access(PageId page, FrameId id, Ownership ownership, uint32_t lost) {
    Frame& frame = pool_->frame(id);
    if (ownership == Ownership::none) {
        if (frame.cached.load(std::memory_order_relaxed)) {
            pages_.index().erase(frame);
            frame.cached.store(false, std::memory_order_relaxed);
            if (frame.writable.load(std::memory_order_relaxed)) writable_share_.begin_leaving(home_of(page));
        }
        frame.word.open(FrameWord::none);
        return;
    }
    if (!frame.cached.load(std::memory_order_relaxed)) {
        TARN_ASSERT(!pages_.index().find_exactly(page));
        frame.page.store(page.value, std::memory_order_release);
        pages_.index().insert(frame);
        frame.cached.store(true, std::memory_order_relaxed);
        pages_.replacement().touch(frame);
        if (frame.writable.load(std::memory_order_relaxed)) writable_share_.stay(home_of(page));
    }
    TARN_ASSERT(frame.page_id() == page);
    frame.lost.store(lost, std::memory_order_relaxed);
    frame.word.open(ownership == Ownership::exclusive ? FrameWord::writable : FrameWord::shared);
    count_writable(frame, ownership == Ownership::exclusive);
}

// In the WritableShare; only pages of other homes, while the frame still has its page.
void Cache::count_writable(Frame& frame, bool writable) {
    const bool before = frame.writable.load(std::memory_order_relaxed);
    if (!before && !writable) return;
    const HostId home = home_of(frame.page_id());
    if (home == self()) return;
    frame.writable.store(writable, std::memory_order_relaxed);
    if (!writable) return writable_share_.leave(home);
    if (!before) writable_share_.enter(home);
    if (writable_share_.is_crowded(home)) provider_->relieve();
}

bool Cache::release(FrameId id, FrameUse use) {
    if (use == use_holder) {
        Frame& frame = pool_->frame(id);
        TARN_ASSERT(!frame.cached.load(std::memory_order_relaxed));
        frame.dirty.store(0, std::memory_order_relaxed);
        frame.writing.store(0, std::memory_order_relaxed);
        pages_.dirty_frames().remove(id);
        if (frame.writable.load(std::memory_order_relaxed)) {
            writable_share_.stay(home_of(frame.page_id()));
            count_writable(frame, false);
        }
    }
    return pool_->release(id, use);
}

bool Cache::wake(const Action& action, bool may_resume) {
    PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
    leave_waiting(access);
    access.wake(action.frame, action.lost);
    if (may_resume && access.shard == Loop::current()) return true;
    access.shard->post(access);
    return false;
}

void Cache::refuse(const Action& action) {
    PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
    leave_waiting(access);
    access.post_failed(refuses_writes_of(action.page) ? Errc::io : Errc::no_space);
}

void Cache::resume(protocol::WaiterToken waiter) {
    reinterpret_cast<PageAccess*>(waiter)->run();
}

void Cache::stamp(Message& message) const {
    message.from = self();
    message.view_epoch = Membership::view_epoch;
    message.map_epoch = membership_.ranges().epoch();
    message.incarnation = membership_.process().incarnation;
    message.loss_generation = store_.loss_generation();
}

// A page that is known to be zeros, or lost, goes as a flag.
void Cache::send(HostId to, const Message& message, FrameId id) {
    if (!fabric_) return;
    Message stamped = message;
    stamp(stamped);
    if (id == no_frame) return fabric_->send(to, stamped, {});
    const Frame& frame = pool_->frame(id);
    const bool lost = frame.broken.load(std::memory_order_relaxed);
    if (lost || frame.zeroed.load(std::memory_order_relaxed)) {
        stamped.flags &= static_cast<uint8_t>(~protocol::flag_payload);
        stamped.flags |= lost ? protocol::flag_zero | protocol::flag_lost : protocol::flag_zero;
        return fabric_->send(to, stamped, {});
    }
    stamped.flags |= protocol::flag_payload;
    fabric_->send(to, stamped, {pool_->bytes(id), page_size});
}

}  // namespace tarn
