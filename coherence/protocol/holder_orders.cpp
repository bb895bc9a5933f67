// Holder: orders for pages that other hosts want, and evictions of pages that are not wanted here.
//
// An order names the tenure it makes. It applies to the frame of the tenure before; until that is here, and the
// operations woken for it were served, it waits among the successors, however early it came.
#include <utility>

#include "coherence/protocol/holder.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

void Holder::on_successor(const Event& event, Actions& actions) {
    const Message& message = event.message;
    const Successor order{.kind = message.kind,
                          .requester = message.host,
                          .flags = message.flags,
                          .request_id = message.request_id,
                          .frame = message.frame,
                          .tenure = message.tenure};
    Holding* holding = holdings_.find(event.page);
    if (holding == nullptr) {
        // This host has nothing to wait for, or to lose.
        const bool wants_bytes = message.kind != MessageKind::drop || message.has(flag_anchor);
        // A page that the previous process evicted bare is in no record of its memory, and home may still count on it.
        if (adopted_ && wants_bytes) return say_that_it_is_gone(event.page, message.tenure, actions);
        if (message.kind == MessageKind::drop) answer_requester(event.page, order, no_frame, actions);
        return;
    }
    if (message.tenure < holding->floor) return;
    // A bare page cannot serve an order. A reader's drop is answered as if nothing were held; for all others the
    // eviction tells home, which then finds out who has the bytes.
    if (holding->custody == Custody::bare && (message.kind != MessageKind::drop || message.has(flag_anchor))) return;
    size_t waiting = 0;
    successors_.for_each(holding->successors, [&](const Successor&) { ++waiting; });
    if (waiting >= successors_max) return actions.refuse_peer(event.page, message.from, "orders: too many of one page");
    successors_.add(holding->successors, order);
    advance(event.page, *holding, actions);
}

// A drop for a tenure that this host's frame or grant has already reached, or that finds nothing held or awaited.
bool Holder::is_answered_blindly(const Holding& holding, const Successor& order) {
    if (order.kind != MessageKind::drop) return false;
    if (holding.frame != no_frame) return holding.tenure >= order.tenure;
    return holding.awaited.request_id == 0 || holding.awaited.granted >= order.tenure;
}

bool Holder::is_applicable(const Holding& holding, const Successor& order) {
    if (holding.frame == no_frame || holding.custody == Custody::blank || holding.tenure + 1 != order.tenure)
        return false;
    switch (order.kind) {
        case MessageKind::drop: return holding.ownership == Ownership::shared;
        case MessageKind::move:
        case MessageKind::move_shared: return holding.ownership == Ownership::exclusive;
        default: return false;
    }
}

// Serves successors that need no quiet frame: copies, which only read, and those with nothing to take. True: one was.
bool Holder::serve_without_frame(PageId page, Holding& holding, Actions& actions) {
    const bool waits_for_nothing = holding.awaited.request_id == 0;
    return successors_.remove_if(holding.successors, [&](const Successor& order) {
        if (is_answered_blindly(holding, order)) {
            answer_requester(page, order, no_frame, actions);
            return true;
        }
        if (order.kind == MessageKind::copy) {
            if (holding.ownership == Ownership::shared && holding.tenure == order.tenure) {
                answer_requester(page, order, holding.frame, actions);
                return true;
            }
            if (holding.kept_frame != no_frame && holding.kept_order == order.tenure + 1) {
                // The drop that follows this copy overtook it.
                answer_requester(page, order, holding.kept_frame, actions);
                return true;
            }
        }
        // The order is older than what this host waits for, so it means a page that the previous process evicted bare.
        const bool wants_bytes = order.kind != MessageKind::drop || (order.flags & flag_anchor) != 0;
        if (adopted_ && wants_bytes && holding.frame == no_frame && holding.kept_frame == no_frame &&
            holding.awaited.granted >= order.tenure) {
            say_that_it_is_gone(page, order.tenure, actions);
            return true;
        }
        // It belongs to an order that was undone.
        return holding.frame != no_frame ? holding.tenure >= order.tenure : waits_for_nothing;
    }) > 0;
}

bool Holder::has_applicable_order(const Holding& holding) const {
    bool applicable = false;
    successors_.for_each(holding.successors,
                         [&](const Successor& order) { applicable |= is_applicable(holding, order); });
    return applicable;
}

bool Holder::wants_quiet(const Holding& holding) const {
    if (holding.report_due || has_applicable_order(holding)) return true;
    if (holding.frame == no_frame) return !holding.write_waiters.empty();
    if (holding.custody == Custody::evicting || holding.trust != Trust::confirmed || holding.writing_back())
        return false;
    return holding.wish != EvictionWish::none || !holding.write_waiters.empty();
}

void Holder::on_quiesced(const Event& event, Holding& holding, Actions& actions) {
    TARN_ASSERT(holding.custody == Custody::quiescing);
    holding.custody = Custody::open;
    serve_quiet(event.page, holding, event.dirty, actions);
    advance(event.page, holding, actions);
}

void Holder::serve_quiet(PageId page, Holding& holding, DirtyMask dirty, Actions& actions) {
    TARN_ASSERT(holding.unserved_count == 0);
    if (holding.report_due) report(page, holding, actions);
    for (bool again = true; again;) {
        again = false;
        Successor order;
        successors_.remove_if(holding.successors, [&](const Successor& each) {
            if (again || !is_applicable(holding, each)) return false;
            order = each;
            again = true;
            return true;
        });
        if (!again) break;
        if (order.kind == MessageKind::drop)
            serve_drop(page, holding, order, dirty, actions);
        else
            serve_move(page, holding, order, dirty, actions);
        dirty = 0;  // the bytes went home with the order
        while (serve_without_frame(page, holding, actions)) {
        }
    }
    if (holding.frame == no_frame) return end_write_backs(page, holding, actions);
    if (holding.custody != Custody::evicting) {
        if (!holding.write_waiters.empty() && !holding.writing_back() && holding.trust == Trust::confirmed)
            start_write_back(page, holding, dirty, actions);
        const EvictionWish wish = std::exchange(holding.wish, EvictionWish::none);
        if (wish != EvictionWish::none) start_eviction(page, holding, wish, dirty, actions);
    }
    if (holding.custody == Custody::open && holding.trust != Trust::adopted)
        actions.set_access(page, holding.frame, holding.ownership, holding.lost);
}

void Holder::answer_requester(PageId page, const Successor& order, FrameId bytes, Actions& actions) const {
    const bool has_bytes = bytes != no_frame;
    const Message message{.kind = has_bytes ? MessageKind::data : MessageKind::acknowledge,
                          .from = self_,
                          .flags = has_bytes ? uint8_t{flag_payload} : uint8_t{0},
                          .request_id = order.request_id,
                          .page = page,
                          .tenure = order.tenure,
                          .frame = order.frame};
    actions.send(order.requester, message, bytes);
}

void Holder::answer_home(PageId page, const Holding& holding, const Successor& order, DirtyMask dirty,
                         Actions& actions) const {
    Message message = to_home(MessageKind::home_copy, page, holding);
    message.tenure = order.tenure;
    message.dirty = dirty;
    if (dirty != 0) message.flags |= flag_payload;
    actions.send(home_of(page), message, dirty != 0 ? holding.frame : no_frame);
}

void Holder::serve_move(PageId page, Holding& holding, const Successor& order, DirtyMask dirty, Actions& actions) {
    const bool wants_bytes = (order.flags & flag_bytes) != 0;
    answer_requester(page, order, wants_bytes ? holding.frame : no_frame, actions);
    answer_home(page, holding, order, dirty, actions);
    if (order.kind == MessageKind::move) {
        keep(page, holding, order.tenure, last_before(order.tenure), actions);
        return;
    }
    // This host is the anchor now: its eviction is refused until the home copy is applied, and a flush counts that
    // copy.
    actions.about_frame(Action::Kind::clear_dirty, page, holding.frame);
    end_write_backs(page, holding, actions);
    holding.ownership = Ownership::shared;
    holding.tenure = holding.anchor_since = order.tenure;
    holding.sequence = 0;
    holding.custody = Custody::open;
    holding.trust = Trust::confirmed;
}

void Holder::serve_drop(PageId page, Holding& holding, const Successor& order, DirtyMask dirty, Actions& actions) {
    const bool is_anchor = (order.flags & flag_anchor) != 0;
    const bool wants_bytes = (order.flags & flag_bytes) != 0;
    answer_requester(page, order, wants_bytes ? holding.frame : no_frame, actions);
    if (is_anchor) {
        answer_home(page, holding, order, dirty, actions);
        keep(page, holding, order.tenure, last_before(order.tenure), actions);
    } else {
        let_go(page, holding, actions);
    }
}

// The frame becomes kept bytes: whole, unreadable, for recovery only.
void Holder::keep(PageId page, Holding& holding, Tenure order, PageVersion version, Actions& actions) {
    forget_kept(page, holding, actions);
    holding.kept_frame = end_custody(page, holding, actions);
    actions.about_frame(Action::Kind::clear_dirty, page, holding.kept_frame);
    end_write_backs(page, holding, actions);
    holding.kept_order = order;
    holding.kept_version = version;
}

void Holder::let_go(PageId page, Holding& holding, Actions& actions) {
    actions.about_frame(Action::Kind::release_frame, page, end_custody(page, holding, actions));
    end_write_backs(page, holding, actions);
}

// Returns the frame; the page is not served from it any more.
FrameId Holder::end_custody(PageId page, Holding& holding, Actions& actions) {
    actions.set_access(page, holding.frame, Ownership::none);
    holding.custody = Custody::none;
    holding.trust = Trust::confirmed;
    holding.ownership = Ownership::none;
    holding.wish = EvictionWish::none;
    holding.anchor_since = 0;
    return std::exchange(holding.frame, no_frame);
}

void Holder::forget_kept(PageId page, Holding& holding, Actions& actions) {
    if (holding.kept_frame == no_frame) return;
    actions.about_frame(Action::Kind::release_frame, page, std::exchange(holding.kept_frame, no_frame));
    holding.kept_order = 0;
}

// Home has these bytes or counts them as on their way: whoever waits for a write-back waits no more.
void Holder::end_write_backs(PageId page, Holding& holding, Actions& actions) {
    waiters_.splice(holding.writing_waiters, holding.write_waiters);
    while (!holding.writing_waiters.empty())
        actions.about_waiter(Action::Kind::written, page, waiters_.take_first(holding.writing_waiters).token);
}

// The answer to the write-back under way is lost, or will be for an older tenure. Its sectors are still marked as
// writing, and the next one takes them along.
void Holder::repeat_write_back(Holding& holding) {
    waiters_.splice(holding.write_waiters, holding.writing_waiters);
}

void Holder::start_eviction(PageId page, Holding& holding, EvictionWish wish, DirtyMask dirty, Actions& actions) {
    const bool discards = wish == EvictionWish::discards;
    if (discards) dirty = 0;
    const bool with_bytes = wish == EvictionWish::with_bytes || dirty != 0;
    // The page is wanted again, or on its way home anyway.
    if (!holding.waiters.empty() || holding.awaited.request_id != 0 || !holding.successors.empty() ||
        holding.writing_back() || holding.trust != Trust::confirmed)
        return;
    const bool at_once = wish == EvictionWish::at_once && !with_bytes && holding.anchor_since == 0;
    actions.set_access(page, holding.frame, Ownership::none);
    holding.custody = at_once || discards ? Custody::bare : Custody::evicting;
    send_eviction(page, holding, dirty, with_bytes ? holding.frame : no_frame, actions);
    if (holding.custody == Custody::bare) leave_bare(page, holding, actions);
}

void Holder::send_eviction(PageId page, Holding& holding, DirtyMask dirty, FrameId bytes, Actions& actions) {
    holding.eviction = {.id = next_request_id(), .dirty = dirty, .says_bare = holding.custody == Custody::bare};
    Message message = to_home(MessageKind::evict, page, holding);
    message.request_id = holding.eviction.id;
    message.sequence = ++holding.sequence;
    message.dirty = dirty;
    if (bytes != no_frame) message.flags |= flag_payload;
    if (holding.eviction.says_bare) message.flags |= flag_evicting;
    actions.send(home_of(page), message, bytes);
}

// Sent as a bare eviction: home finds out who has the bytes, if the order stands. Nobody waits for its answer.
void Holder::say_that_it_is_gone(PageId page, Tenure order, Actions& actions) {
    Holding nothing;
    nothing.tenure = order - 1;
    nothing.custody = Custody::bare;
    send_eviction(page, nothing, 0, no_frame, actions);
}

// Frees the frame of a clean page before its home has answered, which may take long: no other page has to wait for
// that. Home has the bytes; or nobody will ever ask for them (Event::discard).
void Holder::leave_bare(PageId page, Holding& holding, Actions& actions) {
    let_go(page, holding, actions);
    holding.custody = Custody::bare;
}

void Holder::on_eviction_answer(const Event& event, Holding& holding, Actions& actions) {
    if (holding.eviction.id != event.message.request_id) return;
    const bool is_refused = event.message.kind == MessageKind::refused;
    if (holding.custody == Custody::bare) {
        // One eviction at a time: a late one must not be mistaken for an eviction of a page held later.
        if (is_refused && !holding.eviction.says_bare) return send_eviction(event.page, holding, 0, no_frame, actions);
        holding.custody = Custody::none;
    }
    if (holding.custody != Custody::evicting) return;
    if (!is_refused) return let_go(event.page, holding, actions);
    holding.custody = Custody::open;
    holding.trust = Trust::confirmed;
    holding.wish = event.message.has(flag_bytes) ? EvictionWish::with_bytes : EvictionWish::none;
    actions.set_access(event.page, holding.frame, holding.ownership, holding.lost);
}

void Holder::start_write_back(PageId page, Holding& holding, DirtyMask dirty, Actions& actions) {
    if (dirty == 0) return end_write_backs(page, holding, actions);
    waiters_.splice(holding.writing_waiters, holding.write_waiters);
    actions.about_frame(Action::Kind::begin_writing, page, holding.frame);
    Message message = to_home(MessageKind::write_back, page, holding);
    message.sequence = ++holding.sequence;
    message.dirty = dirty;
    message.flags |= flag_payload;
    actions.send(home_of(page), message, holding.frame);
}

void Holder::on_written_back(const Event& event, Holding& holding, Actions& actions) {
    const Message& message = event.message;
    const bool is_latest = message.tenure == holding.tenure && message.sequence == holding.sequence;
    if (!holding.writing_back() || !is_latest) return;
    actions.about_frame(Action::Kind::clear_writing, event.page, holding.frame);
    while (!holding.writing_waiters.empty())
        actions.about_waiter(Action::Kind::written, event.page, waiters_.take_first(holding.writing_waiters).token);
}

void Holder::on_free(const Event& event, Holding& holding, Actions& actions) {
    if (holding.kept_order <= event.message.tenure) forget_kept(event.page, holding, actions);
    if (holding.anchor_since <= event.message.tenure) holding.anchor_since = 0;
}

}  // namespace tarn::protocol
