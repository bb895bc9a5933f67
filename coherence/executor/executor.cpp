#include "coherence/executor/executor.hpp"

#include <utility>

#include "coherence/protocol/lent_frame.hpp"
#include "utils/assert.hpp"

namespace tarn {

using protocol::Action;
using protocol::Message;
using protocol::MessageKind;

void book(protocol::FlushHome& home, const Action& action, protocol::FlushActions& actions) {
    switch (action.kind) {
        case Action::Kind::holder_added: home.holder_added(action.page, action.to); break;
        case Action::Kind::holder_removed: home.holder_removed(action.page, action.to); break;
        case Action::Kind::copy_expected: home.copy_expected(action.page, action.tenure); break;
        case Action::Kind::copy_arrived: home.copy_arrived(action.page, action.tenure, actions); break;
        default: TARN_ASSERT(false);
    }
}

struct Executor::Step {
    protocol::Stripe& stripe;
    const StripeLinks& links;
    StepScratch& scratch;
    StepResult& result;
};

void Executor::step(protocol::Stripe& stripe, const StripeLinks& links, StepScratch& scratch,
                    const protocol::Event& event, StepResult& result, StepObserver& observer) const {
    Step step{.stripe = stripe, .links = links, .scratch = scratch, .result = result};
    std::vector<protocol::Event>& events = scratch.events;
    TARN_ASSERT(events.empty());
    events.push_back(event);
    for (size_t next = 0; next < events.size(); ++next) {
        const protocol::Event now = events[next];
        observer.on_event(now);
        stripe.reserve();
        scratch.actions.clear();
        stripe.on(now, scratch.actions);
        // Before it goes on record that home lacks a page, its frame is dirty: the process may be killed in between.
        for (const Action& action : scratch.actions)
            if (action.kind == Action::Kind::mark_dirty) effects_.frames.mark_dirty(action.frame);
        observer.on_decided(now, scratch.actions);
        for (const Action& action : scratch.actions) perform(step, action);
        observer.on_performed(now);
    }
    events.clear();
    send_pending_grant(step);
}

void Executor::finish(StepResult& result) const {
    if (!result.home_reads.empty()) effects_.home_store.read(std::move(result.home_reads));
    if (!result.flush_actions.empty()) effects_.books.run(std::move(result.flush_actions));
    if (!result.marks.empty()) effects_.home_store.mark(std::move(result.marks));
    if (!result.losses.empty()) effects_.home_store.record_losses(std::move(result.losses), result.lost_host);
    if (result.frames_freed) effects_.frames.freed();
    for (const StepResult::Leased& leased : result.leased) effects_.frames.keep_lease(leased.page, leased.frame);
    for (const protocol::WaiterToken waiter : result.resumed) effects_.accesses.resume(waiter);
}

void Executor::perform(Step& step, const Action& action) const {
    StepResult& result = step.result;
    switch (action.kind) {
        case Action::Kind::nothing: break;
        case Action::Kind::send: {
            Message message = action.message;
            if (message.kind == MessageKind::evict)
                if (const protocol::Holding* const holding = step.stripe.holder().find(action.page);
                    holding && holding->frame != no_frame)
                    message.hosts = effects_.frames.age_of(holding->frame);
            send(step, action.to, message, action.frame);
            break;
        }
        case Action::Kind::send_home_bytes: send_home_bytes(step, action); break;

        case Action::Kind::wake:
            // Directly, without the queue of a shard; but not nested in another operation's step.
            if (effects_.accesses.wake(action, result.of_message)) result.resumed.push_back(action.waiter);
            break;
        case Action::Kind::fail: effects_.accesses.refuse(action); break;
        case Action::Kind::written: effects_.books.on_written(action.waiter, result.flush_actions); break;

        case Action::Kind::quiesce: quiesce(step, action); break;
        case Action::Kind::set_access:
            effects_.frames.set_access(action.page, action.frame, action.ownership, action.lost);
            break;
        case Action::Kind::begin_writing: effects_.frames.begin_writing(action.frame); break;
        case Action::Kind::clear_writing: effects_.frames.clear_writing(action.frame); break;
        case Action::Kind::clear_dirty: effects_.frames.clear_dirty(action.frame); break;
        case Action::Kind::mark_dirty: break;  // was performed first
        case Action::Kind::release_frame: result.frames_freed |= effects_.frames.release(action.frame); break;

        case Action::Kind::apply_copy: result.frames_freed |= effects_.home_store.apply_copy(action); break;
        case Action::Kind::keep_copy: result.frames_freed |= effects_.home_store.keep_copy(action); break;

        case Action::Kind::holder_added:
        case Action::Kind::holder_removed:
        case Action::Kind::copy_expected:
        case Action::Kind::copy_arrived: effects_.books.book(action, result.flush_actions); break;

        case Action::Kind::refuse_peer: result.refused = action.reason; break;
        case Action::Kind::record_loss: result.losses.push_back(action.page); break;
        case Action::Kind::mark: result.marks.push_back(action.page); break;
    }
}

void Executor::quiesce(Step& step, const Action& action) const {
    switch (effects_.frames.quiesce(action.page, action.frame, action.recalled)) {
        case Frames::Quiet::now:
            step.scratch.events.push_back(
                protocol::Event::quiesced_of(action.page, effects_.frames.unwritten_of(action.frame)));
            break;
        case Frames::Quiet::later: break;
        case Frames::Quiet::leased: step.result.leased.push_back({.page = action.page, .frame = action.frame}); break;
    }
}

void Executor::send_home_bytes(Step& step, const Action& action) const {
    Message message = action.message;
    const HomeStore::Found found = effects_.home_store.find(action.page);
    const bool to_us = action.to == self_;
    switch (found.where) {
        case HomeStore::Found::Where::frame:
            message.flags |= protocol::flag_payload;
            if (!to_us) return send(step, action.to, message, found.frame);
            break;
        case HomeStore::Found::Where::zeros:
            message.flags |= protocol::flag_zero;
            if (!to_us) return send(step, action.to, message, no_frame);
            break;
        case HomeStore::Found::Where::store:
            // Never into the frame that the Holder has lent: an order that is undone during the read is given again,
            // and the bytes read for the first one must not land in a page that is then in use.
            step.result.home_reads.push_back({.to = action.to,
                                              .frame = to_us ? effects_.home_store.take_free_frame() : no_frame,
                                              .link = step.links.counts[action.to],
                                              .message = message});
            return;
    }
    FrameId frame = no_frame;
    if (found.where == HomeStore::Found::Where::frame && effects_.home_store.share(found.frame)) {
        frame = found.frame;
    } else {
        // The request's present landing frame. It may have been another one when the request was made: bytes for an
        // order that was undone came in a frame of their own, which replaced it.
        frame = protocol::lent_frame_for_present_bytes(step.stripe.holder().find(message.page), message);
        if (frame == no_frame) frame = effects_.home_store.take_free_frame();
        if (frame == no_frame) return;  // and the Holder now waits for something else
        effects_.home_store.copy(found, frame);
    }
    step.scratch.events.push_back(protocol::Event::message_of(message, frame));
}

void Executor::send(Step& step, HostId to, Message message, FrameId frame) const {
    if (!contains(step.links.up, to)) return;  // messages are not kept for a broken link
    protocol::PendingGrant& pending = step.scratch.pending_grant;
    if (protocol::PendingGrant::is_worth_holding(message, self_)) {
        send_pending_grant(step);
        pending.hold(to, message);
        return;
    }
    (void)pending.join(to, message);
    effects_.outbox.send(to, message, frame);
}

void Executor::send_pending_grant(Step& step) const {
    if (!step.scratch.pending_grant.holds()) return;
    const auto [to, message] = step.scratch.pending_grant.release();
    effects_.outbox.send(to, message, no_frame);
}

}  // namespace tarn
