// What each action of the protocol means in this host. All of it under the latch of the page's stripe.
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

void Cache::perform(StripeSlot& slot, const Action& action, Deferred& deferred) {
    switch (action.kind) {
        case Action::Kind::nothing: break;
        case Action::Kind::send: {
            Message message = action.message;
            if (message.kind == protocol::MessageKind::evict)
                if (const protocol::Holding* const holding = slot.stripe.holder().find(action.page);
                    holding && holding->frame != no_frame)
                    message.hosts = pages_.replacement().age_of(pool_->frame(holding->frame));
            send_frame(slot, action.to, message, action.frame);
            break;
        }
        case Action::Kind::send_home_bytes: send_home_bytes(slot, action, deferred); break;

        case Action::Kind::wake: {
            PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
            leave_waiting(access);
            access.wake(action.frame, action.lost);
            // Without a detour over the queue of this shard; but not nested in another operation's step.
            if (deferred.of_message && access.shard == Loop::current())
                deferred.woken.push_back(&access);
            else
                access.shard->post(access);
            break;
        }
        case Action::Kind::fail: {
            PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
            leave_waiting(access);
            access.post_failed(refuses_writes_of(action.page) ? Errc::io : Errc::no_space);
            break;
        }
        case Action::Kind::written: flusher_->on_written(action.waiter, deferred.flush_actions); break;

        case Action::Kind::quiesce: quiesce(slot, action, deferred); break;
        case Action::Kind::set_access: set_access(action); break;
        case Action::Kind::begin_writing: {
            // In this order: a process may end between any two of these, and no sector may be in neither mask.
            Frame& frame = pool_->frame(action.frame);
            frame.writing.fetch_or(frame.dirty.load(std::memory_order_relaxed), std::memory_order_release);
            frame.dirty.store(0, std::memory_order_release);
            break;
        }
        case Action::Kind::clear_writing: {
            Frame& frame = pool_->frame(action.frame);
            frame.writing.store(0, std::memory_order_relaxed);
            pages_.forget_dirty_if_clean(frame);
            break;
        }
        case Action::Kind::clear_dirty: {
            Frame& frame = pool_->frame(action.frame);
            frame.dirty.store(0, std::memory_order_relaxed);
            frame.writing.store(0, std::memory_order_relaxed);
            pages_.forget_dirty_if_clean(frame);
            break;
        }
        case Action::Kind::mark_dirty: pages_.mark_dirty(pool_->frame(action.frame), all_sectors); break;
        case Action::Kind::release_frame: release(action.frame, use_holder, deferred); break;

        case Action::Kind::apply_copy: apply_copy(action, deferred); break;
        case Action::Kind::keep_copy: keep_copy(action, deferred); break;

        case Action::Kind::holder_added:
        case Action::Kind::holder_removed:
        case Action::Kind::copy_expected:
        case Action::Kind::copy_arrived: flusher_->book(action, deferred.flush_actions); break;

        case Action::Kind::refuse_peer: deferred.refused = action.reason; break;
        case Action::Kind::record_loss: deferred.losses.push_back(action.page); break;
        case Action::Kind::mark: deferred.marks.push_back(action.page); break;
    }
}

void Cache::quiesce(StripeSlot& slot, const Action& action, Deferred& deferred) {
    Frame& frame = pool_->frame(action.frame);
    const Loop* const loop = Loop::current();
    if (action.recalled && lease_.writes != 0 && loop && !loop->ending() && pages_.is_being_written(action.frame)) {
        frame.word.recall(std::min(lease_.writes, FrameWord::writes_left_max));
        deferred.recalled.push_back(
            {.page = action.page, .frame = action.frame, .version = FrameWord::version(frame.word.load())});
        return;
    }
    if (frame.word.make_busy()) slot.events.push_back(quiesced(frame, action.page));
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

void Cache::set_access(const Action& action) {
    const PageId page = action.page;
    Frame& frame = pool_->frame(action.frame);
    if (action.ownership == Ownership::none) {
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
    frame.lost.store(action.lost, std::memory_order_relaxed);
    frame.word.open(action.ownership == Ownership::exclusive ? FrameWord::writable : FrameWord::shared);
    count_writable(frame, action.ownership == Ownership::exclusive);
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

void Cache::release(FrameId id, FrameUse use, Deferred& deferred) {
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
    if (pool_->release(id, use)) deferred.frames_freed = true;
}

void Cache::send(StripeSlot& slot, HostId to, Message message, std::span<const std::byte> payload) {
    if (!protocol::contains(slot.linked, to) || !fabric_) return;  // nothing is kept for a broken link
    if (protocol::PendingGrant::is_worth_holding(message, self())) {
        send_pending_grant(slot);
        slot.pending_grant.hold(to, message);
        return;
    }
    (void)slot.pending_grant.join(to, message);
    stamp(message);
    fabric_->send(to, message, payload);
}

void Cache::send_pending_grant(StripeSlot& slot) {
    if (!slot.pending_grant.holds()) return;
    auto [to, message] = slot.pending_grant.release();
    stamp(message);
    fabric_->send(to, message, {});
}

void Cache::stamp(Message& message) const {
    message.from = self();
    message.view_epoch = Membership::view_epoch;
    message.map_epoch = membership_.ranges().epoch();
    message.incarnation = membership_.process().incarnation;
    message.loss_generation = store_.loss_generation();
}

void Cache::send_frame(StripeSlot& slot, HostId to, Message message, FrameId id) {
    if (id == no_frame) return send(slot, to, message, {});
    const Frame& frame = pool_->frame(id);
    const bool lost = frame.broken.load(std::memory_order_relaxed);
    if (lost || frame.zeroed.load(std::memory_order_relaxed)) {
        message.flags &= static_cast<uint8_t>(~protocol::flag_payload);
        message.flags |= lost ? protocol::flag_zero | protocol::flag_lost : protocol::flag_zero;
        return send(slot, to, message, {});
    }
    message.flags |= protocol::flag_payload;
    send(slot, to, message, {pool_->bytes(id), page_size});
}

}  // namespace tarn
