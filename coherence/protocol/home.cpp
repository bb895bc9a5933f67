#include "coherence/protocol/home.hpp"

#include <algorithm>
#include <utility>

#include "utils/assert.hpp"

namespace tarn::protocol {

Home::Home(HostId self, uint32_t epoch, const Past& past)
    : self_(self),
      first_(first_tenure_of(epoch)),
      told_in_doubt_(first_tenure_of(past.last_in_doubt)),
      told_of_loss_(first_tenure_of(past.last_loss + 1)),
      retired_(first_tenure_of(epoch)) {
    TARN_ASSERT(past.last_in_doubt != 0 && past.last_in_doubt <= epoch && past.last_loss < epoch);
    reserve();
}

void Home::reserve() {
    // One event makes at most one claim and one request. Each request becomes one order, which expects at most one
    // copy, and the end of a resolve may order all of them at once.
    claims_.reserve(2);
    losses_.reserve(1);
    requests_.reserve(2);
    copies_.reserve(requests_.used() + 2);
}

void Home::on(const Event& event, Actions& actions) {
    switch (event.kind) {
        case Event::Kind::message: on_message(event, actions); break;
        case Event::Kind::peer_up: on_peer_up(event, actions); break;
        case Event::Kind::host_forgotten: on_host_forgotten(event.host, actions); break;
        case Event::Kind::volume_unknown: on_volume_unknown(event.page.volume(), actions); break;
        case Event::Kind::recovered: on_recovered(event, actions); break;
        case Event::Kind::loss_recorded: on_loss_recorded(event, actions); break;
        case Event::Kind::marked: on_marked(event, actions); break;
        default: TARN_ASSERT(false);  // it is the Holder's
    }
}

void Home::on_message(const Event& event, Actions& actions) {
    switch (event.message.kind) {
        case MessageKind::get_shared:
        case MessageKind::get_exclusive:
        case MessageKind::get_exclusive_no_read: on_get(event, actions); break;
        case MessageKind::done: on_done(event, actions); break;
        case MessageKind::evict: on_evict(event, actions); break;
        case MessageKind::home_copy: on_home_copy(event, actions); break;
        case MessageKind::write_back: on_write_back(event, actions); break;
        case MessageKind::report: on_report(event, actions); break;
        case MessageKind::resolve: on_resolve(event, actions); break;
        case MessageKind::hello: on_hello(event, actions); break;
        default: discard_payload(event, actions);  // it is the Holder's
    }
}

Claim& Home::claim_of(PageId page) {
    if (Claim* claim = claims_.find(page)) return *claim;
    Claim& claim = claims_.insert(page);
    claim.tenure = retired_ + 1;
    // Nobody held the page: home's bytes are the newest. A home that lost its claims does not know that (on_hello).
    if (!recovering_) claim.applied = last_before(claim.tenure);
    return claim;
}

Message Home::to_holder(MessageKind kind, PageId page, Tenure tenure) const {
    return {.kind = kind, .from = self_, .page = page, .tenure = tenure};
}

Message Home::to_holder(MessageKind kind, PageId page, const Request& request) const {
    Message message = to_holder(kind, page, request.tenure);
    message.host = request.requester;
    message.request_id = request.request_id;
    message.frame = request.frame;
    return message;
}

Message Home::grant_of(PageId page, const Request& request) const {
    Message grant = to_holder(MessageKind::grant, page, request);
    grant.host = request.source;
    grant.hosts = request.ackers;
    grant.sequence = lost_in(page);
    return grant;
}

uint32_t Home::lost_in(PageId page) const {
    if (const uint32_t* const loss = losses_.find(page)) return *loss;
    return losses_before_ == nullptr ? 0 : losses_before_->generation_of(page);
}

template <class Predicate>
void Home::close_orders(PageId page, Claim& claim, Actions& actions, Predicate&& closes) {
    while (const Request* open = requests_.find(claim.orders, closes)) {
        const Request closed = *open;
        requests_.remove_if(claim.orders, [&](const Request& each) { return &each == open; });
        if (closed.keeper != no_host) free_kept(page, claim, closed.keeper, closed.tenure, actions);
    }
}

void Home::on_get(const Event& event, Actions& actions) {
    const Message& message = event.message;
    Claim& claim = claim_of(message.page);
    const Request request{
        .kind = message.kind, .requester = message.from, .request_id = message.request_id, .frame = message.frame};
    const auto same = [&](const Request& known) {
        return known.requester == request.requester && known.request_id == request.request_id;
    };
    if (requests_.find(claim.orders, same) || requests_.find(claim.queue, same)) return;  // a hello repeated it

    // A host has one request for a page at a time: its older ones are done.
    close_orders(message.page, claim, actions, [&](const Request& open) { return open.requester == message.from; });
    requests_.remove_if(claim.queue, [&](const Request& older) { return older.requester == message.from; });

    if (!recovering_ && (event.no_space || event.store_failed) && message.kind != MessageKind::get_shared) {
        Message answer = to_holder(MessageKind::no_space, message.page, claim.tenure);
        answer.request_id = message.request_id;
        if (event.store_failed) answer.flags |= flag_lost;
        actions.send(message.from, answer);
    } else if (recovering_) {
        requests_.add(claim.queue, request);
    } else if (claim.owner == message.from ||
               (message.kind == MessageKind::get_shared && contains(claim.readers, message.from))) {
        // It asks for a page that it should have: find out who has what.
        requests_.add(claim.queue, request);
        start_resolve(message.page, claim, claim.holders(), actions);
    } else {
        requests_.add(claim.queue, request);
        serve_queue(message.page, claim, actions);
    }
    settle(message.page, claim, actions);
}

// An owner writes without telling home: before, it must be on record that newer bytes than the store's may exist.
bool Home::lacks_mark(PageId page, const Request& request) const {
    return request.kind != MessageKind::get_shared && marks_ != nullptr && !marks_->has(page);
}

void Home::serve_queue(PageId page, Claim& claim, Actions& actions) {
    while (!claim.queue.empty() && !claim.resolving) {
        if (lacks_mark(page, requests_.at(claim.queue.first))) {
            if (!std::exchange(claim.marking, true)) actions.add(Action::Kind::mark, page);
            return;
        }
        order(page, claim, requests_.take_first(claim.queue), actions);
    }
}

void Home::on_marked(const Event& event, Actions& actions) {
    Claim* claim = claims_.find(event.page);
    if (claim == nullptr || !std::exchange(claim->marking, false)) return;
    if (event.store_failed) {
        const auto writes = [](const Request& request) { return request.kind != MessageKind::get_shared; };
        requests_.for_each(claim->queue, [&](const Request& request) {
            if (!writes(request)) return;
            Message answer = to_holder(MessageKind::no_space, event.page, claim->tenure);
            answer.request_id = request.request_id;
            answer.flags |= flag_lost;
            actions.send(request.requester, answer);
        });
        requests_.remove_if(claim->queue, writes);
    }
    serve_queue(event.page, *claim, actions);
    settle(event.page, *claim, actions);
}

bool Home::has_everything(PageId page) const {
    if (recovering_) return false;
    const Claim* const claim = claims_.find(page);
    if (claim == nullptr) return true;
    const bool is_at_rest = claim->orders.empty() && claim->queue.empty() && claim->copies.empty();
    return claim->home_has_bytes() && is_at_rest && !claim->resolving;
}

void Home::order(PageId page, Claim& claim, Request request, Actions& actions) {
    request.source = no_host;
    request.keeper = no_host;
    request.ackers = 0;
    if (request.kind == MessageKind::get_shared)
        order_shared(page, claim, request, actions);
    else
        order_exclusive(page, claim, request, actions);
    requests_.add(claim.orders, request);
}

void Home::order_shared(PageId page, Claim& claim, Request& request, Actions& actions) {
    if (claim.owner != no_host) {
        ++claim.tenure;
        claim.anchor = claim.owner;
        claim.readers = set_of(claim.owner);
        claim.owner = no_host;
        request.keeper = claim.anchor;
        expect_copy(page, claim, claim.tenure, claim.anchor, actions);
    }
    request.source = claim.anchor;
    request.ackers = set_of(request.source);
    request.tenure = claim.tenure;
    claim.readers |= set_of(request.requester);

    Message grant = grant_of(page, request);
    if (request.source == no_host) {
        Action& action = actions.add(Action::Kind::send_home_bytes, page);
        action.to = request.requester;
        action.message = grant;
        return;
    }
    actions.send(request.requester, grant);
    Message order = to_holder(request.keeper == no_host ? MessageKind::copy : MessageKind::move_shared, page, request);
    order.flags |= flag_bytes;
    actions.send(request.source, order);
}

void Home::order_exclusive(PageId page, Claim& claim, Request& request, Actions& actions) {
    const bool has_current_copy = contains(claim.readers, request.requester);
    const bool wants_bytes = request.kind == MessageKind::get_exclusive && !has_current_copy;
    HostId anchor = claim.anchor != no_host ? claim.anchor : copy_source(claim);
    if (anchor == request.requester) anchor = no_host;
    const bool home_is_current = claim.home_has_bytes();
    request.tenure = ++claim.tenure;
    if (home_is_current) claim.applied = std::max(claim.applied, last_before(claim.tenure));
    // Every holder answers the requester, even when no bytes are wanted: until then it may read its copy.
    request.ackers = (claim.readers | set_of(claim.owner)) & ~set_of(request.requester);
    request.keeper = claim.owner != no_host ? claim.owner : anchor;
    request.source = wants_bytes ? request.keeper : no_host;

    Message grant = grant_of(page, request);
    grant.flags |= flag_exclusive;
    if (wants_bytes && request.source == no_host) {
        Action& action = actions.add(Action::Kind::send_home_bytes, page);
        action.to = request.requester;
        action.message = grant;
    } else {
        actions.send(request.requester, grant);
    }
    if (request.keeper != no_host) expect_copy(page, claim, claim.tenure, request.keeper, actions);

    const MessageKind kind = claim.owner != no_host ? MessageKind::move : MessageKind::drop;
    for_each_host(request.ackers, [&](HostId holder) {
        Message order = to_holder(kind, page, request);
        if (holder == request.source) order.flags |= flag_bytes;
        if (holder == anchor) order.flags |= flag_anchor;
        actions.send(holder, order);
    });
    claim.owner = request.requester;
    claim.readers = 0;
    claim.anchor = no_host;
}

// A reader whose `copy` for another one may still be under way, though home has the bytes now: the drop may overtake
// that copy, so this reader must keep the page as if it were the anchor.
HostId Home::copy_source(const Claim& claim) const {
    HostId source = no_host;
    requests_.for_each(claim.orders, [&](const Request& open) {
        if (open.tenure == claim.tenure && contains(claim.readers, open.source)) source = open.source;
    });
    return source;
}

void Home::on_done(const Event& event, Actions& actions) {
    const Message& message = event.message;
    Claim* claim = claims_.find(event.page);
    if (claim == nullptr) return;
    // By its id: a late `done` must not close a newer order of the same tenure.
    close_orders(event.page, *claim, actions, [&](const Request& open) {
        return open.requester == message.from && open.request_id == message.request_id;
    });
    settle(event.page, *claim, actions);
}

bool Home::may_evict(const Claim& claim, const Message& message) const {
    if (claim.resolving || claim.tenure != message.tenure || !contains(claim.holders(), message.from)) return false;
    // Bytes on their way home must arrive before this host may forget them, and hosts waiting for it must be served.
    if (!claim.copies.empty()) return false;
    bool named = false;
    requests_.for_each(claim.orders, [&](const Request& open) {
        named |= contains(open.hosts() & ~set_of(open.requester), message.from);
    });
    return !named;
}

// Whether home counts on a host that has nothing any more, as a holder or for bytes that an order asks it for.
bool Home::counts_on(const Claim& claim, HostId host) const {
    bool asked = false;
    requests_.for_each(claim.orders, [&](const Request& open) { asked |= open.source == host || open.keeper == host; });
    return !claim.resolving && (asked || contains(claim.holders(), host));
}

bool Home::only_has(const Claim& claim, HostId host) {
    return (claim.owner == host || claim.anchor == host) && claim.applied < last_before(claim.tenure);
}

bool Home::brings_news(const Claim& claim, const Message& message) {
    return message.has_bytes() && (message.dirty != 0 || claim.applied < last_before(claim.tenure));
}

void Home::take_evicted_bytes(Claim& claim, const Event& event, Actions& actions) {
    const Message& message = event.message;
    if (!message.has_bytes()) return;
    if (brings_news(claim, message)) {
        apply(message.page, claim, {message.tenure, message.sequence}, event, actions);
    } else if (event.wants_copy) {
        Action& action = actions.add(Action::Kind::keep_copy, message.page);
        action.frame = event.frame;
        action.borrowed = event.borrowed;
    } else {
        discard_payload(event, actions);
    }
}

void Home::on_evict(const Event& event, Actions& actions) {
    const Message& message = event.message;
    Claim* claim = claims_.find(message.page);
    if (recovering_) return discard_payload(event, actions);  // its hello will say what it has
    if (claim != nullptr && message.dirty != 0 && message.tenure == claim->tenure && claim->owner == no_host &&
        contains(claim->readers, message.from) && claim->anchor != no_host && claim->anchor != message.from)
        return refuse(event, actions, "evict: a reader cannot have written");
    Message answer = to_holder(MessageKind::refused, message.page, claim ? claim->tenure : 0);
    answer.request_id = message.request_id;
    // A host evicts only a page that it was served.
    if (claim != nullptr && !claim->resolving)
        close_orders(message.page, *claim, actions, [&](const Request& open) {
            return open.requester == message.from && open.tenure <= message.tenure;
        });
    // No correct host drops bytes that only it has.
    const bool is_anchor = claim != nullptr && claim->anchor == message.from && !claim->home_has_bytes();
    const bool left_what_it_must_keep = message.has(flag_evicting) && is_anchor;
    if (claim == nullptr || !may_evict(*claim, message) || left_what_it_must_keep) {
        discard_payload(event, actions);
        actions.send(message.from, answer);
        if (claim != nullptr && message.has(flag_evicting) && counts_on(*claim, message.from))
            start_resolve(message.page, *claim, claim->holders(), actions);
        if (claim != nullptr) settle(message.page, *claim, actions);
        return;
    }
    const bool is_last_copy = claim->holders() == set_of(message.from) && claim->queue.empty();
    const bool wants_bytes = only_has(*claim, message.from) || (event.wants_copy && is_last_copy);
    // It was clean: what home has is as new.
    if (message.has(flag_evicting) && claim->owner == message.from)
        claim->applied = std::max(claim->applied, last_before(claim->tenure));
    if (!message.has(flag_evicting) && wants_bytes && !message.has_bytes()) {
        answer.flags |= flag_bytes;
        actions.send(message.from, answer);
        return settle(message.page, *claim, actions);
    }
    if (event.store_failed && brings_news(*claim, message)) {
        // The bytes would only fill home's memory, for good; their holder can still read them.
        discard_payload(event, actions);
        answer.flags |= flag_lost;
        actions.send(message.from, answer);
        return settle(message.page, *claim, actions);
    }
    take_evicted_bytes(*claim, event, actions);
    if (claim->owner == message.from) claim->owner = no_host;
    if (claim->anchor == message.from) claim->anchor = no_host;
    claim->readers &= ~set_of(message.from);
    answer.kind = MessageKind::evicted;
    actions.send(message.from, answer);
    settle(message.page, *claim, actions);
}

// The last call of every handler that touched a claim: updates the books, and removes a claim that says nothing.
void Home::settle(PageId page, Claim& claim, Actions& actions) {
    const HostId holder = claim.resolving ? no_host : claim.owner != no_host ? claim.owner : claim.anchor;
    if (holder != claim.booked) {
        if (holder != no_host) actions.about_holder(Action::Kind::holder_added, page, holder);
        if (claim.booked != no_host) actions.about_holder(Action::Kind::holder_removed, page, claim.booked);
        claim.booked = holder;
    }
    if (!recovering_) check(claim);
    const bool says_nothing = claim.holders() == 0 && claim.keepers == 0 && claim.orders.empty() &&
                              claim.queue.empty() && claim.copies.empty() && !claim.resolving;
    if (!says_nothing) return;
    retired_ = std::max(retired_, claim.tenure);
    claims_.erase(page);
}

void Home::check(const Claim& claim) const {
    TARN_ASSERT(claim.owner == no_host || claim.readers == 0);
    TARN_ASSERT(claim.anchor == no_host || contains(claim.readers, claim.anchor));
    TARN_ASSERT(claim.resolving || claim.owner != no_host || claim.home_has_bytes() == (claim.anchor == no_host));
    TARN_ASSERT(claim.tenure > 0 && claim.applied.tenure <= claim.tenure);
}

}  // namespace tarn::protocol
