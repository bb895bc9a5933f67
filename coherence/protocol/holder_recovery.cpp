// Holder: recall, and the messages over a new link.
//
// A hello names a page that is held or kept; the request that waits for it, if any, is simply sent again after it, and
// home ignores what it knows. flag_shared, flag_exclusive: tenure is the frame's. flag_anchor: home may lack the
// bytes of this reader. flag_evicting: request_id is the eviction's. flag_bytes: kept bytes are here, beside a frame or
// alone; hosts is their order.
#include <algorithm>
#include <utility>

#include "coherence/protocol/holder.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

// Nothing below the floor is obeyed any more, and a grant below it is dropped; other received messages count only for a
// grant of their own tenure (hear). The request itself stands.
void Holder::raise_floor(Holding& holding, Tenure floor) {
    holding.floor = std::max(holding.floor, floor);
    Awaited& awaited = holding.awaited;
    if (awaited.granted < holding.floor) {
        awaited.granted = 0;
        awaited.ackers = 0;
        awaited.needs_bytes = false;
    }
    successors_.remove_if(holding.successors, [&](const Successor& order) { return order.tenure < holding.floor; });
}

void Holder::on_recall(const Event& event, Actions& actions) {
    const Message& message = event.message;
    Holding* holding = holdings_.find(event.page);
    if (holding == nullptr)
        return actions.send(message.from,
                            {.kind = MessageKind::report, .from = self_, .page = event.page, .tenure = message.tenure});
    if (message.tenure < holding->floor) return;
    raise_floor(*holding, message.tenure);
    holding->report_due = PageVersion{message.hosts, message.sequence};
    advance(event.page, *holding, actions);
}

// The frame is quiet. A frame of the recalled tenure or newer comes from a grant after the resolve: it stays.
void Holder::report(PageId page, Holding& holding, Actions& actions) {
    const PageVersion home_version = *std::exchange(holding.report_due, std::nullopt);
    if (holding.frame != no_frame && holding.tenure < holding.floor) {
        const bool may_have_written = holding.ownership == Ownership::exclusive;
        const PageVersion version{holding.tenure, may_have_written ? holding.sequence + 1 : holding.sequence};
        keep(page, holding, holding.floor, version, actions);
    }
    Message message = to_home(MessageKind::report, page, holding);
    message.tenure = holding.floor;
    message.request_id = holding.awaited.request_id;
    FrameId bytes = no_frame;
    if (holding.kept_frame != no_frame && holding.kept_version > home_version) {
        bytes = holding.kept_frame;
        message.flags |= flag_payload;
        message.dirty = all_sectors;
        message.hosts = holding.kept_version.tenure;
        message.sequence = holding.kept_version.sequence;
    }
    actions.send(home_of(page), message, bytes);
}

void Holder::on_peer_up(const Event& event, Actions& actions) {
    const bool is_new = event.previous.epoch != 0 && event.process.epoch != event.previous.epoch;
    pages_.clear();
    holdings_.for_each([&](PageId page, const Holding&) { pages_.push_back(page); });
    for (const PageId page : pages_) {
        Holding& holding = *holdings_.find(page);
        if (home_of(page) == event.host) {
            if (is_new)
                home_restarted(page, holding, event.process.epoch,
                               event.process.incarnation == event.previous.incarnation, actions);
            if (holding.custody == Custody::bare) send_eviction(page, holding, 0, no_frame, actions);
            if (holding.frame != no_frame) {
                if (holding.trust == Trust::confirmed) holding.trust = Trust::unconfirmed;
                repeat_write_back(holding);
            }
            if (holding.frame != no_frame || holding.kept_frame != no_frame) send_hello(page, holding, actions);
            if (holding.awaited.request_id != 0) actions.send(home_of(page), request_message(page, holding));
        }
        advance(page, holding, actions);
    }
}

// That host's bytes or acknowledgement may be lost: over the last link, or because its side of this one came up later.
// What home orders from now on it sends here.
void Holder::on_peer_greeted(HostId host, Actions& actions) const {
    holdings_.for_each([&](PageId page, const Holding& holding) {
        if (holding.awaited.request_id == 0 || home_of(page) == host) return;
        Message resolve = to_home(MessageKind::resolve, page, holding);
        resolve.request_id = holding.awaited.request_id;
        actions.send(home_of(page), resolve);
    });
}

// A blank frame has nothing to adopt.
Adopted Holding::recorded() const {
    Adopted recorded;
    if (frame != no_frame && custody != Custody::blank)
        recorded.held = {.frame = frame,
                         .ownership = ownership,
                         .tenure = tenure,
                         .sequence = sequence,
                         .lost = lost,
                         .evict_id = custody == Custody::evicting ? eviction.id : 0,
                         .anchor_since = anchor_since};
    if (kept_frame != no_frame)
        recorded.kept = {
            .frame = kept_frame, .order = kept_order, .tenure = kept_version.tenure, .sequence = kept_version.sequence};
    return recorded;
}

void Holder::adopt_request_ids(RequestId last) {
    last_request_id_ = last;
    adopted_ = true;
}

// This process holds what the previous one held, as far as the home agrees. Other hosts' homes are told over the link;
// our own home started with this process, and is told at once.
void Holder::on_adopted(const Event& event, Actions& actions) {
    const FrameHeld& held = event.adopted->held;
    const FrameHeld& kept = event.adopted->kept;
    TARN_ASSERT(holdings_.find(event.page) == nullptr && (held.frame != no_frame || kept.frame != no_frame));
    Holding& holding = holdings_.insert(event.page);
    if (held.frame != no_frame) {
        holding.frame = held.frame;
        holding.ownership = held.ownership;
        holding.tenure = held.tenure;
        holding.sequence = held.sequence;
        holding.lost = held.lost;
        holding.custody = held.evict_id != 0 ? Custody::evicting : Custody::open;
        holding.eviction = {.id = held.evict_id, .dirty = held.dirty};
        holding.anchor_since = held.anchor_since;
        holding.trust = Trust::adopted;
    }
    if (kept.frame != no_frame) {
        holding.kept_frame = kept.frame;
        holding.kept_order = kept.order;
        holding.kept_version = {kept.tenure, kept.sequence};
    }
    if (home_of(event.page) == self_) {
        home_restarted(event.page, holding, event.process.epoch, true, actions);
        send_hello(event.page, holding, actions);
    }
    advance(event.page, holding, actions);
}

// A home that kept its memory lacks no more than before.
void Holder::home_restarted(PageId page, Holding& holding, uint32_t epoch, bool has_memory, Actions& actions) {
    raise_floor(holding, first_tenure_of(epoch));
    // Nobody knows any more whether the eviction was accepted. Its bytes become kept bytes.
    if (holding.custody == Custody::evicting)
        keep(page, holding, holding.tenure + 1, last_before(holding.tenure + 1), actions);
    if (holding.custody == Custody::bare) holding.custody = Custody::none;  // a home without claims counts on nobody
    if (!has_memory) holding.anchor_since = holding.tenure;
    if (holding.frame != no_frame && holding.anchor_since != 0)
        actions.about_frame(Action::Kind::mark_dirty, page, holding.frame);
    holding.report_due.reset();
}

void Holder::send_hello(PageId page, const Holding& holding, Actions& actions) const {
    Message hello = to_home(MessageKind::hello, page, holding);
    if (holding.ownership == Ownership::shared) hello.flags |= flag_shared;
    if (holding.ownership == Ownership::exclusive) hello.flags |= flag_exclusive;
    if (holding.anchor_since != 0) hello.flags |= flag_anchor;
    if (holding.kept_frame != no_frame) {
        hello.flags |= flag_bytes;
        hello.hosts = holding.kept_order;
    }
    if (holding.custody == Custody::evicting) {
        hello.flags |= flag_evicting;
        hello.request_id = holding.eviction.id;
    }
    actions.send(home_of(page), hello);
}

void Holder::on_confirm(const Event& event, Holding& holding, Actions& actions) {
    const Message& message = event.message;
    if (message.tenure < holding.floor || holding.trust == Trust::confirmed || message.tenure < holding.tenure) return;
    const bool opens = std::exchange(holding.trust, Trust::confirmed) == Trust::adopted;
    if (message.tenure > holding.tenure) {
        // A restarted home. Of several readers one is the anchor of the bytes home has lost.
        holding.tenure = message.tenure;
        holding.sequence = 0;
        const bool is_anchor = message.has(flag_anchor);
        holding.anchor_since = is_anchor ? message.tenure : 0;
        if (is_anchor || holding.ownership == Ownership::shared)
            actions.about_frame(is_anchor ? Action::Kind::mark_dirty : Action::Kind::clear_dirty, event.page,
                                holding.frame);
    }
    if (opens && holding.custody == Custody::open)
        actions.set_access(event.page, holding.frame, holding.ownership, holding.lost);
}

}  // namespace tarn::protocol
