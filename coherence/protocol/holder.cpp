#include "coherence/protocol/holder.hpp"

#include <algorithm>
#include <utility>

#include "utils/assert.hpp"

namespace tarn::protocol {

namespace {

bool suffices(Ownership ownership, Want want) {
    return ownership == Ownership::exclusive || (ownership == Ownership::shared && want == Want::shared);
}

MessageKind request_kind(Want want) {
    switch (want) {
        case Want::shared: return MessageKind::get_shared;
        case Want::exclusive: return MessageKind::get_exclusive;
        case Want::exclusive_no_read: return MessageKind::get_exclusive_no_read;
    }
    return MessageKind::get_exclusive;
}

}  // namespace

Holder::Holder(HostId self, const RangeMap& ranges) : self_(self), ranges_(&ranges) {
    reserve();
}

void Holder::use(const RangeMap& ranges) {
    TARN_ASSERT(ranges.epoch() >= ranges_->epoch());
    ranges_ = &ranges;
}

void Holder::reserve() {
    // One event makes at most one record and one waiter. One order queues one successor; a step of this host's own Home
    // may give a few orders at once, at most one per open request of a page.
    holdings_.reserve(2);
    waiters_.reserve(2);
    successors_.reserve(hosts_max + 2);
}

void Holder::on(const Event& event, Actions& actions) {
    Holding* holding = holdings_.find(event.page);
    switch (event.kind) {
        case Event::Kind::acquire: on_acquire(event, actions); break;
        case Event::Kind::served:
            TARN_ASSERT(holding != nullptr);
            on_served(event.page, *holding, actions);
            break;
        case Event::Kind::cancel:
            if (holding != nullptr) on_cancel(event, *holding, actions);
            break;
        case Event::Kind::evict:
            if (holding != nullptr) on_evict(event, *holding, actions);
            break;
        case Event::Kind::write_back:
            if (holding == nullptr) {
                actions.about_waiter(Action::Kind::written, event.page, event.waiter);
                break;
            }
            waiters_.add(holding->write_waiters, {.token = event.waiter});
            advance(event.page, *holding, actions);
            break;
        case Event::Kind::quiesced:
            TARN_ASSERT(holding != nullptr);
            on_quiesced(event, *holding, actions);
            break;
        case Event::Kind::message: on_message(event, actions); break;
        case Event::Kind::peer_up: on_peer_up(event, actions); break;
        case Event::Kind::peer_greeted: on_peer_greeted(event.host, actions); break;
        case Event::Kind::adopted: on_adopted(event, actions); break;
        default: TARN_ASSERT(false);  // it is Home's
    }
}

void Holder::on_message(const Event& event, Actions& actions) {
    const MessageKind kind = event.message.kind;
    switch (kind) {
        case MessageKind::move:
        case MessageKind::move_shared:
        case MessageKind::copy:
        case MessageKind::drop: return on_successor(event, actions);
        case MessageKind::recall: return on_recall(event, actions);
        default: break;
    }
    Holding* holding = holdings_.find(event.page);
    // A payload lies in the frame that was lent for it, or in one that is ours to take or to release.
    const bool is_lent = holding != nullptr && event.frame == holding->awaited.landing;
    bool taken = false;
    if (holding != nullptr) {
        const FrameId landing_before = holding->awaited.landing;
        switch (kind) {
            case MessageKind::grant: on_grant(event, *holding, actions); break;
            case MessageKind::data: on_data(event, *holding, actions); break;
            case MessageKind::acknowledge: on_acknowledge(event, *holding, actions); break;
            case MessageKind::no_space: on_no_space(event, *holding, actions); break;
            case MessageKind::evicted:
            case MessageKind::refused: on_eviction_answer(event, *holding, actions); break;
            case MessageKind::written_back: on_written_back(event, *holding, actions); break;
            case MessageKind::free: on_free(event, *holding, actions); break;
            case MessageKind::confirm: on_confirm(event, *holding, actions); break;
            default: break;
        }
        taken = holding->awaited.landing == event.frame || (is_lent && landing_before == event.frame);
        advance(event.page, *holding, actions);
    }
    if (event.frame != no_frame && !event.borrowed && !is_lent && !taken)
        actions.about_frame(Action::Kind::release_frame, event.page, event.frame);
}

RequestId Holder::next_request_id() {
    if (++last_request_id_ == 0) ++last_request_id_;
    return last_request_id_;
}

Message Holder::to_home(MessageKind kind, PageId page, const Holding& holding) const {
    return {.kind = kind, .from = self_, .page = page, .tenure = holding.tenure};
}

void Holder::on_acquire(const Event& event, Actions& actions) {
    Holding* holding = holdings_.find(event.page);
    if (holding == nullptr) holding = &holdings_.insert(event.page);
    waiters_.add(holding->waiters, {.token = event.waiter, .want = event.want});
    if (holding->spare == no_frame)
        holding->spare = event.frame;
    else
        actions.about_frame(Action::Kind::release_frame, event.page, event.frame);
    advance(event.page, *holding, actions);
}

void Holder::on_evict(const Event& event, Holding& holding, Actions& actions) {
    const bool is_clean = holding.eviction.dirty == 0 && holding.anchor_since == 0;
    if (event.at_once && holding.custody == Custody::evicting && holding.trust == Trust::confirmed &&
        (event.discard || is_clean))
        leave_bare(event.page, holding, actions);
    if (holding.frame == no_frame)
        holding.wish = EvictionWish::none;
    else if (event.discard)
        holding.wish = EvictionWish::discards;
    else if (holding.wish != EvictionWish::with_bytes)
        holding.wish = event.at_once ? EvictionWish::at_once : EvictionWish::wanted;
    advance(event.page, holding, actions);
}

void Holder::on_cancel(const Event& event, Holding& holding, Actions& actions) {
    // The old bytes may be gone before a whole-page write: such a write is carried out.
    waiters_.remove_if(holding.waiters, [&](const Waiter& waiter) {
        return waiter.token == event.waiter && waiter.want != Want::exclusive_no_read;
    });
    advance(event.page, holding, actions);
}

void Holder::on_served(PageId page, Holding& holding, Actions& actions) {
    TARN_ASSERT(holding.unserved_count > 0);
    --holding.unserved_count;
    if (holding.custody == Custody::blank) {
        // The page is whole now, and everyone else who waited for this grant may have it.
        holding.custody = Custody::open;
        actions.set_access(page, holding.frame, holding.ownership, holding.lost);
        wake_waiters(page, holding, actions);
    }
    if (holding.unserved_count == 0) send_done(page, holding, actions);
    advance(page, holding, actions);
}

void Holder::send_done(PageId page, Holding& holding, Actions& actions) {
    if (holding.done_due == 0) return;
    Message done = to_home(MessageKind::done, page, holding);
    done.request_id = std::exchange(holding.done_due, 0);
    actions.send(home_of(page), done);
}

// True if the message is about the present order of the request that waits.
bool Holder::hear(Holding& holding, const Message& message) {
    Awaited& awaited = holding.awaited;
    if (awaited.request_id == 0 || awaited.request_id != message.request_id) return false;
    if (message.tenure < holding.floor || message.tenure < awaited.heard_tenure) return false;
    if (message.tenure > awaited.heard_tenure) {
        awaited.heard_tenure = message.tenure;
        awaited.heard = 0;
        awaited.has_bytes = false;
    }
    return true;
}

void Holder::on_grant(const Event& event, Holding& holding, Actions& actions) {
    const Message& message = event.message;
    Awaited& awaited = holding.awaited;
    if (!hear(holding, message)) return;
    if (message.tenure == 0 || message.has(flag_exclusive) != (awaited.want != Want::shared))
        return actions.refuse_peer(event.page, message.from, "grant: of something else than was asked for");
    // Home's bytes are not an acknowledgement: the Holder on home's host may be a reader that has yet to answer.
    if (message.has_bytes()) take_bytes(event, holding, actions);
    awaited.granted = message.tenure;
    awaited.grants_exclusive = message.has(flag_exclusive);
    awaited.needs_bytes = message.has_bytes() || message.host != no_host;
    awaited.ackers = message.hosts;
    awaited.lost = message.sequence;
    // Home believes that our own copy is current. If we have none, home must resolve the page.
    const bool lacks_base = !awaited.needs_bytes && awaited.want != Want::exclusive_no_read &&
                            (holding.frame == no_frame || holding.tenure + 1 != message.tenure);
    if (lacks_base) {
        awaited.granted = 0;
        Message resolve = to_home(MessageKind::resolve, event.page, holding);
        resolve.request_id = awaited.request_id;
        actions.send(home_of(event.page), resolve);
    }
}

// True: home has named the hosts that answer this order, and the sender is not among them. An answer that came before
// the grant counts only if the grant then names its sender.
bool Holder::was_not_asked(const Awaited& awaited, const Message& message) {
    return awaited.granted == message.tenure && !contains(awaited.ackers, message.from);
}

void Holder::on_data(const Event& event, Holding& holding, Actions& actions) {
    if (!hear(holding, event.message)) return;
    if (was_not_asked(holding.awaited, event.message))
        return actions.refuse_peer(event.page, event.message.from, "data: of a host that was not asked");
    holding.awaited.heard |= set_of(event.message.from);
    take_bytes(event, holding, actions);
}

void Holder::take_bytes(const Event& event, Holding& holding, Actions& actions) {
    Awaited& awaited = holding.awaited;
    if (event.frame != awaited.landing) {
        actions.about_frame(Action::Kind::release_frame, event.page, awaited.landing);
        awaited.landing = event.frame;
    }
    awaited.has_bytes = true;
}

void Holder::on_acknowledge(const Event& event, Holding& holding, Actions& actions) {
    if (!hear(holding, event.message)) return;
    if (was_not_asked(holding.awaited, event.message))
        return actions.refuse_peer(event.page, event.message.from, "acknowledge: of a host that was not asked");
    holding.awaited.heard |= set_of(event.message.from);
}

void Holder::on_no_space(const Event& event, Holding& holding, Actions& actions) {
    Awaited& awaited = holding.awaited;
    if (awaited.request_id == 0 || awaited.request_id != event.message.request_id) return;
    if (holding.spare == no_frame)
        holding.spare = awaited.landing;
    else
        actions.about_frame(Action::Kind::release_frame, event.page, awaited.landing);
    awaited = {};
    waiters_.remove_if(holding.waiters, [&](const Waiter& waiter) {
        if (waiter.want == Want::shared) return false;
        actions.about_waiter(Action::Kind::fail, event.page, waiter.token);
        return true;
    });
}

// Grant, bytes and acknowledgements are in.
void Holder::complete(PageId page, Holding& holding, Actions& actions) {
    const Awaited awaited = std::exchange(holding.awaited, {});
    if (awaited.needs_bytes) {
        TARN_ASSERT(awaited.landing != no_frame);
        if (holding.frame != no_frame) let_go(page, holding, actions);
        holding.frame = awaited.landing;
        holding.custody = Custody::open;
    } else if (holding.frame == no_frame) {
        holding.frame = awaited.landing;
        holding.custody = Custody::blank;
    } else if (holding.spare == no_frame && !holding.waiters.empty()) {
        holding.spare = awaited.landing;
    } else {
        actions.about_frame(Action::Kind::release_frame, page, awaited.landing);
    }
    repeat_write_back(holding);
    holding.ownership = awaited.grants_exclusive ? Ownership::exclusive : Ownership::shared;
    holding.tenure = awaited.granted;
    holding.sequence = 0;
    holding.lost = awaited.lost;
    holding.trust = Trust::confirmed;
    const bool is_blank = holding.custody == Custody::blank;
    if (awaited.needs_bytes || is_blank) holding.anchor_since = 0;
    holding.done_due = awaited.request_id;
    // An owner's bytes are newer than what it kept, and will be kept or sent home in turn. A reader's may be dropped
    // while what it kept is still on its way home.
    if (awaited.grants_exclusive) forget_kept(page, holding, actions);
    if (!is_blank) actions.set_access(page, holding.frame, holding.ownership, holding.lost);
    wake_waiters(page, holding, actions);
    if (holding.unserved_count == 0) send_done(page, holding, actions);
}

// Wakes all waiters for whom the present ownership suffices; on a blank page only one, which writes all of it.
void Holder::wake_waiters(PageId page, Holding& holding, Actions& actions) {
    const bool is_blank = holding.custody == Custody::blank;
    waiters_.remove_if(holding.waiters, [&](const Waiter& waiter) {
        if (!suffices(holding.ownership, waiter.want)) return false;
        if (is_blank && (waiter.want != Want::exclusive_no_read || holding.unserved_count > 0)) return false;
        Action& wake = actions.add(Action::Kind::wake, page);
        wake.waiter = waiter.token;
        wake.frame = holding.frame;
        wake.ownership = holding.ownership;
        wake.lost = holding.lost;
        ++holding.unserved_count;
        return true;
    });
    TARN_ASSERT(!is_blank || holding.unserved_count == 1);
}

void Holder::send_request(PageId page, Holding& holding, Actions& actions) {
    // Strong enough for everyone who waits now.
    Want want = Want::shared;
    waiters_.for_each(holding.waiters, [&](const Waiter& waiter) { want = std::max(want, waiter.want); });
    TARN_ASSERT(holding.spare != no_frame);
    holding.awaited = {.request_id = next_request_id(), .want = want, .landing = holding.spare};
    holding.spare = no_frame;
    actions.send(home_of(page), request_message(page, holding));
}

Message Holder::request_message(PageId page, const Holding& holding) const {
    Message message = to_home(request_kind(holding.awaited.want), page, holding);
    message.request_id = holding.awaited.request_id;
    message.frame = holding.awaited.landing;
    return message;
}

void Holder::advance(PageId page, Holding& holding, Actions& actions) {
    if (holding.custody != Custody::quiescing) {
        if (holding.awaited.request_id != 0 && holding.awaited.complete()) complete(page, holding, actions);
        while (serve_without_frame(page, holding, actions)) {
        }
        if (holding.unserved_count == 0 && wants_quiet(holding)) {
            if (holding.frame == no_frame || holding.custody == Custody::evicting) {
                serve_quiet(page, holding, holding.eviction.dirty, actions);
            } else {
                holding.custody = Custody::quiescing;
                Action& quiesce = actions.add(Action::Kind::quiesce, page);
                quiesce.frame = holding.frame;
                quiesce.recalled =
                    holding.ownership == Ownership::exclusive && !holding.report_due && has_applicable_order(holding);
            }
        }
    }
    const bool is_open = (holding.custody == Custody::none || holding.custody == Custody::open) &&
                         holding.trust != Trust::adopted && !holding.report_due;
    if (is_open && holding.frame != no_frame && holding.successors.empty()) wake_waiters(page, holding, actions);
    if (is_open && holding.unserved_count == 0 && holding.awaited.request_id == 0 &&
        waiters_.find(holding.waiters, [&](const Waiter& waiter) { return !suffices(holding.ownership, waiter.want); }))
        send_request(page, holding, actions);
    if (holding.waiters.empty() && holding.spare != no_frame)
        actions.about_frame(Action::Kind::release_frame, page, std::exchange(holding.spare, no_frame));
    check(holding);
    if (holding.is_empty()) {
        end_write_backs(page, holding, actions);
        successors_.remove_if(holding.successors, [](const Successor&) { return true; });
        holdings_.erase(page);
    }
}

void Holder::check(const Holding& holding) const {
    const bool has_frame = holding.custody != Custody::none && holding.custody != Custody::bare;
    TARN_ASSERT(has_frame == (holding.frame != no_frame));
    TARN_ASSERT(has_frame == (holding.ownership != Ownership::none));
    TARN_ASSERT(has_frame || (holding.trust == Trust::confirmed && holding.wish == EvictionWish::none));
    TARN_ASSERT(!has_frame || holding.tenure > 0);
    TARN_ASSERT(holding.ownership != Ownership::exclusive || holding.kept_frame == no_frame);
    TARN_ASSERT(holding.custody != Custody::bare || holding.awaited.request_id == 0);
    TARN_ASSERT(holding.waiters.empty() || holding.spare != no_frame || holding.awaited.request_id != 0 ||
                holding.custody == Custody::blank);
}

}  // namespace tarn::protocol
