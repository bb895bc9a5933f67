// Home: one recovery path, resolve.
//
// Whatever was lost (a message, bytes, a host), home recalls the page from every host that may know something of it.
// Each reports its newest bytes and what it waits for; home takes the newest, and orders the requests that still stand
// anew. Walks over all claims happen only here, once per new link.
#include <algorithm>
#include <bit>
#include <utility>

#include "coherence/protocol/home.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

HostSet Home::hosts_of_orders(const Claim& claim) const {
    HostSet hosts = 0;
    requests_.for_each(claim.orders, [&](const Request& open) { hosts |= open.hosts(); });
    return hosts;
}

HostSet Home::hosts_of_copies(const Claim& claim) const {
    HostSet hosts = 0;
    copies_.for_each(claim.copies, [&](const HomeCopy& copy) { hosts |= set_of(copy.host); });
    return hosts;
}

// Recalls also every host that an open order or a copy names.
void Home::start_resolve(PageId page, Claim& claim, HostSet recalled, Actions& actions) {
    TARN_ASSERT(!claim.resolving);
    recalled |= hosts_of_orders(claim) | hosts_of_copies(claim);
    claim.resolving = true;
    ++claim.tenure;
    claim.recalled = claim.missing = recalled;
    claim.keepers = 0;
    claim.owner = claim.anchor = no_host;
    claim.readers = 0;
    // The reports count as an outstanding copy, like those on their way, which flushes may wait for already.
    actions.about_copy(Action::Kind::copy_expected, page, claim.tenure);
    for_each_host(recalled, [&](HostId host) { send_recall(page, claim, host, actions); });
    if (recalled == 0) finish_resolve(page, claim, actions);
}

void Home::send_recall(PageId page, const Claim& claim, HostId host, Actions& actions) const {
    Message recall = to_holder(MessageKind::recall, page, claim.tenure);
    PageVersion known = claim.applied;
    if (contains(claim.dismissed, host)) known = std::max(known, last_before(first_));
    recall.hosts = known.tenure;
    recall.sequence = known.sequence;
    actions.send(host, recall);
}

void Home::on_report(const Event& event, Actions& actions) {
    const Message& message = event.message;
    Claim* claim = claims_.find(message.page);
    if (claim != nullptr && message.tenure > claim->tenure) return refuse(event, actions, "report: of no recall");
    if (claim == nullptr || !claim->resolving || message.tenure != claim->tenure ||
        !contains(claim->missing, message.from))
        return discard_payload(event, actions);
    if (message.has_bytes()) apply(message.page, *claim, {message.hosts, message.sequence}, event, actions);
    // A request whose requester no longer waits is complete, or was given up.
    const auto is_over = [&](const Request& request) {
        return request.requester == message.from && request.request_id != message.request_id;
    };
    requests_.remove_if(claim->orders, is_over);
    claim->missing &= ~set_of(message.from);
    finish_resolve(message.page, *claim, actions);
    settle(message.page, *claim, actions);
}

void Home::finish_resolve(PageId page, Claim& claim, Actions& actions) {
    if (!claim.resolving || claim.missing != 0 || claim.loss_pending) return;
    claim.resolving = false;
    claim.applied = last_before(claim.tenure);
    actions.about_copy(Action::Kind::copy_arrived, page, claim.tenure);
    while (!claim.copies.empty())
        actions.about_copy(Action::Kind::copy_arrived, page, copies_.take_first(claim.copies).tenure);
    for_each_host(claim.recalled,
                  [&](HostId host) { actions.send(host, to_holder(MessageKind::free, page, claim.tenure)); });
    claim.recalled = 0;
    NodeList orders;
    std::swap(orders, claim.orders);
    while (!orders.empty()) order(page, claim, requests_.take_first(orders), actions);
    serve_queue(page, claim, actions);
}

void Home::on_resolve(const Event& event, Actions& actions) {
    const Message& message = event.message;
    Claim* claim = claims_.find(message.page);
    if (claim == nullptr || claim->resolving || recovering_) return;
    const auto is_meant = [&](const Request& open) {
        return open.requester == message.from && open.request_id == message.request_id;
    };
    if (!requests_.find(claim->orders, is_meant)) return;
    start_resolve(message.page, *claim, claim->holders(), actions);
    settle(message.page, *claim, actions);
}

void Home::record_loss(PageId page, Claim& claim, Actions& actions) {
    if (claim.loss_pending) return;
    claim.loss_pending = true;
    actions.add(Action::Kind::record_loss, page);
}

void Home::on_loss_recorded(const Event& event, Actions& actions) {
    uint32_t* const loss = losses_.find(event.page);
    (loss != nullptr ? *loss : losses_.insert(event.page)) = event.loss_generation;
    Claim* claim = claims_.find(event.page);
    if (claim == nullptr) return;
    claim->loss_pending = false;
    finish_resolve(event.page, *claim, actions);
    settle(event.page, *claim, actions);
}

// settle() may remove the claim, so the pages are listed before.
template <class Visitor>
void Home::for_each_claim(Actions& actions, Visitor&& visit) {
    pages_.clear();
    claims_.for_each([&](PageId page, const Claim&) { pages_.push_back(page); });
    for (const PageId page : pages_) {
        Claim& claim = *claims_.find(page);
        visit(page, claim);
        settle(page, claim, actions);
    }
}

// Nobody is told: only a host that lied could wait for an answer.
void Home::on_volume_unknown(VolumeId volume, Actions& actions) {
    const auto all = [](const auto&) { return true; };
    for_each_claim(actions, [&](PageId page, Claim& claim) {
        if (page.volume() != volume) return;
        requests_.remove_if(claim.orders, all);
        requests_.remove_if(claim.queue, all);
        while (!claim.copies.empty())
            actions.about_copy(Action::Kind::copy_arrived, page, copies_.take_first(claim.copies).tenure);
        if (std::exchange(claim.resolving, false)) actions.about_copy(Action::Kind::copy_arrived, page, claim.tenure);
        claim.owner = claim.anchor = no_host;
        claim.readers = claim.keepers = claim.missing = claim.recalled = 0;
        claim.loss_pending = claim.marking = false;
        claim.applied = std::max(claim.applied, last_before(claim.tenure));
    });
}

// A host's memory is gone, and with it the bytes that only it had.
void Home::forget_host(PageId page, Claim& claim, HostId host, Actions& actions) {
    requests_.remove_if(claim.queue, [&](const Request& request) { return request.requester == host; });
    if (recovering_) {
        if (claim.owner == host) claim.owner = no_host;
        if (claim.anchor == host) claim.anchor = no_host;
        claim.readers &= ~set_of(host);
        claim.keepers &= ~set_of(host);
        return;
    }
    const HostSet in_orders = hosts_of_orders(claim);
    const HostSet in_copies = hosts_of_copies(claim);
    const HostSet named = claim.holders() | in_orders | in_copies | claim.missing;
    if (!contains(named, host)) return;
    const bool requests_exclusive = requests_.find(claim.orders, [&](const Request& open) {
        return open.requester == host && open.kind != MessageKind::get_shared;
    });
    if (claim.owner == host || claim.anchor == host || requests_exclusive || contains(in_copies | claim.missing, host))
        record_loss(page, claim, actions);
    if (!claim.resolving) {
        if (!contains(in_orders | in_copies, host) && claim.home_has_bytes()) {
            claim.readers &= ~set_of(host);
            return;
        }
        start_resolve(page, claim, named & ~set_of(host), actions);
    }
    requests_.remove_if(claim.orders, [&](const Request& open) { return open.requester == host; });
    claim.missing &= ~set_of(host);
    claim.recalled &= ~set_of(host);
    finish_resolve(page, claim, actions);
}

// A process that adopted its memory waits for nothing any more.
void Home::forget_requests(Claim& claim, HostId host) {
    const auto is_its = [&](const Request& request) { return request.requester == host; };
    requests_.remove_if(claim.queue, is_its);
    // A host that has reported is not recalled again.
    if (claim.resolving) requests_.remove_if(claim.orders, is_its);
}

void Home::on_peer_up(const Event& event, Actions& actions) {
    const HostId host = event.host;
    const bool is_new = event.process.incarnation != event.previous.incarnation;
    const bool has_adopted = !is_new && event.process != event.previous;
    for_each_claim(actions, [&](PageId page, Claim& claim) {
        if (has_adopted) forget_requests(claim, host);
        if (is_new || recovering_) {
            forget_host(page, claim, host, actions);
        } else if (claim.resolving) {
            if (contains(claim.missing, host)) send_recall(page, claim, host, actions);
        } else if (contains(hosts_of_orders(claim) | hosts_of_copies(claim), host)) {
            start_resolve(page, claim, claim.holders(), actions);
        }
    });
}

void Home::on_host_forgotten(HostId host, Actions& actions) {
    for_each_claim(actions, [&](PageId page, Claim& claim) { forget_host(page, claim, host, actions); });
}

void Home::on_hello(const Event& event, Actions& actions) {
    const Message& message = event.message;
    const bool holds = message.has(flag_shared) || message.has(flag_exclusive);
    if (recovering_) {
        Claim& claim = claim_of(message.page);
        if (event.stored_tenure == unknown_tenure)
            claim.stored_unknown = true;
        else
            claim.applied = std::max(claim.applied, PageVersion{event.stored_tenure, event.stored_sequence});
        if (holds) {
            claim.oldest_held = std::min(claim.oldest_held, message.tenure);
            claim.newest_held = std::max(claim.newest_held, message.tenure);
        }
        if (message.has(flag_shared)) claim.readers |= set_of(message.from);
        if (message.has(flag_shared) && message.has(flag_anchor)) claim.anchor = message.from;
        if (message.has(flag_exclusive)) {
            // Two owners are impossible; if two hosts claim it, the newer bytes win.
            if (claim.owner != no_host) claim.keepers |= set_of(claim.owner);
            claim.owner = message.from;
        }
        if (message.has(flag_bytes)) claim.keepers |= set_of(message.from);
        return;
    }
    Claim* claim = claims_.find(message.page);
    const bool is_resolving = claim != nullptr && claim->resolving;
    if (is_resolving && contains(claim->recalled, message.from)) return;  // its report will say everything
    // Orders and copies that needed its kept bytes were resolved when the link came up.
    if (message.has(flag_bytes)) actions.send(message.from, to_holder(MessageKind::free, message.page, message.hosts));
    if (!holds) return;
    const bool is_named =
        claim != nullptr && claim->tenure == message.tenure &&
        (message.has(flag_exclusive) ? claim->owner == message.from : contains(claim->readers, message.from));
    // The page was ordered away since the link came up: the move or drop under way says what to do with the frame.
    const bool is_ordered_away = claim != nullptr && !is_named && contains(hosts_of_orders(*claim), message.from);
    if (message.has(flag_evicting)) {
        Message answer = to_holder(MessageKind::evicted, message.page, message.tenure);
        if (is_named || is_ordered_away) answer.kind = MessageKind::refused;
        answer.request_id = message.request_id;
        actions.send(message.from, answer);
    } else if (is_named) {
        actions.send(message.from, to_holder(MessageKind::confirm, message.page, claim->tenure));
    } else if (is_resolving) {
        claim->recalled |= set_of(message.from);
        claim->missing |= set_of(message.from);
        send_recall(message.page, *claim, message.from, actions);
    } else if (is_ordered_away && message.tenure < first_) {
        // The host missed this home's confirmation of its frame, and cannot tell that the order follows on that.
        start_resolve(message.page, *claim, claim->holders() | set_of(message.from), actions);
        settle(message.page, *claim, actions);
    } else if (!is_ordered_away) {
        Claim& unknown = claim_of(message.page);
        start_resolve(message.page, unknown, unknown.holders() | set_of(message.from), actions);
        settle(message.page, unknown, actions);
    }
}

// Nothing of the page is under way. Bytes that home lacks are marked dirty at the owner, or with the anchor; without
// its memory home has only the store's bytes.
void Home::confirm_holders(PageId page, Claim& claim, bool has_memory, Actions& actions) {
    ++claim.tenure;
    if (claim.owner == no_host && claim.anchor == no_host && has_memory)
        claim.applied = last_before(claim.tenure);
    else if (claim.owner == no_host && claim.anchor == no_host)
        claim.anchor = static_cast<HostId>(std::countr_zero(claim.readers));
    for_each_host(claim.holders(), [&](HostId host) {
        Message confirm = to_holder(MessageKind::confirm, page, claim.tenure);
        if (host == claim.anchor || (host == claim.owner && !has_memory)) confirm.flags |= flag_anchor;
        actions.send(host, confirm);
    });
}

void Home::on_recovered(const Event& event, Actions& actions) {
    recovering_ = false;
    losses_before_ = event.losses;
    for_each_claim(actions, [&](PageId page, Claim& claim) {
        const bool contradicts = claim.owner != no_host && claim.readers != 0;
        if (claim.stored_unknown) {
            // Kept bytes may be older than the stored ones, which a flush may have covered: the stored ones stand, even
            // when a holder, whose bytes are newer than either, dies before it has reported them. Bytes that were only
            // kept are lost with this home's memory, and the new incarnation says so to every flush.
            claim.dismissed = claim.keepers & ~claim.holders();
            for_each_host(claim.dismissed,
                          [&](HostId host) { actions.send(host, to_holder(MessageKind::free, page, claim.tenure)); });
            claim.keepers &= claim.holders();
        }
        // One of them may have missed that the page was written.
        const bool is_outdated = claim.oldest_held < std::max(claim.newest_held, claim.applied.tenure);
        if (claim.keepers != 0 || contradicts || is_outdated) {
            start_resolve(page, claim, claim.holders() | claim.keepers, actions);
        } else if (claim.holders() != 0) {
            // Bytes on their way here when a host lost its memory are in no mask; this process may never have known
            // that the page was resolved for them. And what a predecessor in doubt told a holder may not have arrived.
            const bool missed =
                claim.oldest_held < told_in_doubt_ || (claim.oldest_held < told_of_loss_ && lost_in(page) != 0);
            confirm_holders(page, claim, event.has_memory && !missed, actions);
        } else {
            claim.applied = last_before(claim.tenure);
        }
        serve_queue(page, claim, actions);
    });
}

}  // namespace tarn::protocol
