// What each action of the protocol means in this host. All of it under the latch of the page's stripe.
#include <cstring>

#include "coherence/cache/cache.hpp"
#include "coherence/cache/flusher.hpp"
#include "coherence/cache/page_access.hpp"

namespace tarn {

using protocol::Action;
using protocol::Message;
using protocol::Ownership;

void Cache::perform(StripeSlot& slot, const Action& action, Deferred& deferred) {
    switch (action.kind) {
        case Action::Kind::nothing: break;
        case Action::Kind::send: send_frame(slot, action.to, action.message, action.frame); break;
        case Action::Kind::send_home_bytes: send_home_bytes(slot, action, deferred); break;

        case Action::Kind::wake: {
            PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
            leave_waiting(access);
            access.post_woken(action.frame);
            break;
        }
        case Action::Kind::fail: {
            PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
            leave_waiting(access);
            access.post_failed(Errc::no_space);
            break;
        }
        case Action::Kind::written: flusher_->on_written(action.waiter, deferred.flush_actions); break;

        case Action::Kind::quiesce: {
            Frame& frame = pool_->frame(action.frame);
            if (frame.word.make_busy()) slot.events.push_back(quiesced(frame, action.page));
            break;
        }
        case Action::Kind::set_access: set_access(action.page, action.frame, action.ownership); break;
        case Action::Kind::begin_writing: {
            Frame& frame = pool_->frame(action.frame);
            frame.writing.fetch_or(frame.dirty.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
            break;
        }
        case Action::Kind::clear_writing: {
            Frame& frame = pool_->frame(action.frame);
            frame.writing.store(0, std::memory_order_relaxed);
            forget_dirty_if_clean(frame);
            break;
        }
        case Action::Kind::clear_dirty: {
            Frame& frame = pool_->frame(action.frame);
            frame.dirty.store(0, std::memory_order_relaxed);
            frame.writing.store(0, std::memory_order_relaxed);
            forget_dirty_if_clean(frame);
            break;
        }
        case Action::Kind::mark_dirty: mark_dirty(pool_->frame(action.frame), all_sectors); break;
        case Action::Kind::release_frame: release(action.frame, use_holder, deferred); break;

        case Action::Kind::apply_copy: apply_copy(action, deferred); break;
        case Action::Kind::keep_copy:  // it may be dropped at any time: home asks for none yet
            if (!action.borrowed) release(action.frame, use_holder, deferred);
            break;

        case Action::Kind::holder_added:
        case Action::Kind::holder_removed:
        case Action::Kind::copy_expected:
        case Action::Kind::copy_arrived: flusher_->book(action, deferred.flush_actions); break;

        case Action::Kind::refuse_peer: deferred.refused = action.reason; break;
        case Action::Kind::record_loss: deferred.losses.push_back(action.page); break;
    }
}

void Cache::set_access(PageId page, FrameId id, Ownership ownership) {
    Frame& frame = pool_->frame(id);
    if (ownership == Ownership::none) {
        if (frame.cached.load(std::memory_order_relaxed)) {
            cached_.erase(frame);
            frame.cached.store(false, std::memory_order_relaxed);
        }
        frame.word.open(FrameWord::none);
        return;
    }
    if (!frame.cached.load(std::memory_order_relaxed)) {
        TARN_ASSERT(!cached_.find_exactly(page));
        frame.page.store(page.value, std::memory_order_release);
        cached_.insert(frame);
        frame.cached.store(true, std::memory_order_relaxed);
        replacement_.touch(frame);
    }
    TARN_ASSERT(frame.page_id() == page);
    frame.word.open(ownership == Ownership::exclusive ? FrameWord::writable : FrameWord::shared);
}

void Cache::mark_dirty(Frame& frame, DirtyMask mask) {
    frame.dirty.fetch_or(mask, std::memory_order_seq_cst);
    dirty_frames_.add(pool_->id_of(frame));
}

// A writer marks the mask before the set, we take from the set before we look at the mask again: one of us sees it.
void Cache::forget_dirty_if_clean(Frame& frame) {
    const FrameId id = pool_->id_of(frame);
    dirty_frames_.remove(id);
    if ((frame.dirty.load(std::memory_order_seq_cst) | frame.writing.load(std::memory_order_seq_cst)) != 0)
        dirty_frames_.add(id);
}

void Cache::release(FrameId id, FrameUse use, Deferred& deferred) {
    if (use == use_holder) {
        Frame& frame = pool_->frame(id);
        TARN_ASSERT(!frame.cached.load(std::memory_order_relaxed));
        frame.dirty.store(0, std::memory_order_relaxed);
        frame.writing.store(0, std::memory_order_relaxed);
        dirty_frames_.remove(id);
    }
    if (pool_->release(id, use)) deferred.frames_freed = true;
}

void Cache::send(StripeSlot& slot, HostId to, Message message, std::span<const std::byte> payload) {
    if (!protocol::contains(slot.linked, to) || !fabric_) return;  // nothing is kept for a broken link
    counters_.messages_sent.fetch_add(1, std::memory_order_relaxed);
    stamp(message);
    fabric_->send(to, message, payload);
}

void Cache::stamp(Message& message) const {
    message.from = self_;
    message.view_epoch = view_epoch;
    message.map_epoch = ranges_.epoch();
    message.incarnation = incarnation_;
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
