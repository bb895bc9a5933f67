// The state of each part that decides what happens next. Only whether there is a frame matters, not which.
#include "tests/sim/explore/digest.hpp"

#include "coherence/protocol/flush.hpp"
#include "coherence/protocol/holder.hpp"
#include "coherence/protocol/home.hpp"

namespace tarn::protocol {

void Home::digest(PageId page, Digest& digest) const {
    const uint32_t* const loss = losses_.find(page);
    digest.add(recovering_, loss == nullptr ? 0 : *loss);
    const Claim* const claim = claims_.find(page);
    if (claim == nullptr) return digest.tenure(retired_);
    digest.add(claim->resolving, claim->marking, claim->loss_pending, claim->stored_unknown);
    for (const HostId host : {claim->owner, claim->anchor, claim->booked}) digest.host(host);
    for (const HostSet hosts : {claim->readers, claim->missing, claim->recalled, claim->keepers, claim->dismissed})
        digest.hosts(hosts);
    digest.tenure(claim->tenure);
    digest.version(claim->applied);
    if (recovering_ && claim->newest_held != 0) {
        digest.tenure(claim->oldest_held);
        digest.tenure(claim->newest_held);
        digest.add(claim->oldest_held < told_in_doubt_, claim->oldest_held < told_of_loss_);
    }
    const auto add_request = [&](const Request& request) {
        digest.add(request.kind);
        for (const HostId host : {request.requester, request.source, request.keeper}) digest.host(host);
        digest.hosts(request.ackers);
        digest.request(request.requester, request.request_id);
        digest.tenure(request.tenure);
    };
    requests_.for_each(claim->orders, add_request);
    digest.add('|');
    requests_.for_each(claim->queue, add_request);
    digest.add('|');
    copies_.for_each(claim->copies, [&](const HomeCopy& copy) {
        digest.add(copy.clean);
        digest.host(copy.host);
        digest.tenure(copy.tenure);
    });
}

void Holder::digest(PageId page, Digest& digest) const {
    const Holding* const holding = holdings_.find(page);
    if (holding == nullptr) return digest.add('-');
    digest.add(holding->custody, holding->ownership, holding->unserved_count, holding->spare == no_frame,
               holding->done_due != 0, holding->kept_frame == no_frame, holding->report_due.has_value());
    digest.tenure(holding->floor);
    if (holding->frame != no_frame) {
        digest.add(holding->lost, holding->sequence, holding->trust, holding->wish);
        digest.tenure(holding->tenure);
    }
    if (holding->custody == Custody::evicting) digest.add(holding->eviction.dirty);
    if (holding->custody == Custody::bare) digest.add(holding->eviction.says_bare);
    if (holding->custody == Custody::evicting || holding->custody == Custody::bare)
        digest.request(self_, holding->eviction.id);
    digest.request(self_, holding->done_due);
    if (holding->kept_frame != no_frame) {
        digest.tenure(holding->kept_order);
        digest.version(holding->kept_version);
    }
    if (holding->report_due) digest.version(*holding->report_due);
    const Awaited& awaited = holding->awaited;
    digest.request(self_, awaited.request_id);
    if (awaited.request_id != 0) {
        digest.add(awaited.lost, awaited.want, awaited.grants_exclusive, awaited.needs_bytes, awaited.has_bytes);
        digest.hosts(awaited.ackers);
        digest.hosts(awaited.heard);
        digest.tenure(awaited.granted);
        digest.tenure(awaited.heard_tenure);
    }
    const auto add_waiter = [&](const Waiter& waiter) {
        digest.add(waiter.want);
        digest.waiter(self_, waiter.token);
    };
    waiters_.for_each(holding->waiters, add_waiter);
    digest.add('|');
    waiters_.for_each(holding->writing_waiters, add_waiter);
    digest.add('|');
    waiters_.for_each(holding->write_waiters, add_waiter);
    digest.add('|');
    successors_.for_each(holding->successors, [&](const Successor& order) {
        digest.add(order.kind, order.flags);
        digest.host(order.requester);
        digest.request(order.requester, order.request_id);
        digest.tenure(order.tenure);
    });
}

void FlushHome::digest(Digest& digest) const {
    digest.add(recovering_);
    for (const Volume& volume : volumes_) {
        for (HostId host = 0; host < hosts_max; ++host) {
            if (volume.holder_counts[host] == 0) continue;
            digest.host(host);
            digest.add(volume.holder_counts[host]);
        }
        digest.add('|');
        for (const OutstandingCopy& copy : volume.copies) {
            digest.tenure(copy.tenure);
            for (const Flush& flush : flushes_) digest.add(copy.ticket <= flush.copies_until);
        }
    }
    for (const Flush& flush : flushes_) {
        digest.host(flush.requester);
        digest.flush(flush.requester, flush.request_id);
        digest.ask(self_, flush.ask_id);
        digest.ticket(self_, flush.ticket);
        digest.hosts(flush.unanswered);
        digest.add(flush.noted, flush.known, flush.in_store);
    }
}

void FlushHolder::digest(Digest& digest) const {
    for (const Ask& ask : asks_) {
        digest.waiter(self_, ask.waiter);
        digest.host(ask.home);
        digest.ask(ask.home, ask.ask_id);
        digest.add(ask.missing + 1, ask.has_begun);  // it may be -1
    }
}

void FlushRequester::digest(Digest& digest) const {
    for (const Known& known : known_) {
        digest.host(known.home);
        digest.add(known.verifier);
    }
    for (const Session& session : sessions_)
        for (const Note& note : session.notes) {
            digest.host(note.home);
            digest.add(note.noted, note.mixed);
        }
    digest.add('|');
    for (const Flush& flush : flushes_) {
        digest.flush(self_, flush.request_id);
        digest.hosts(flush.unanswered);
        digest.add(flush.lost);
        for (const Part& part : flush.parts) {
            digest.host(part.home);
            digest.add(part.noted, part.known);
            for (const Session& session : sessions_)
                for (const Note& note : session.notes)
                    if (session.id == flush.session && note.home == part.home) digest.add(note.writes == part.writes);
        }
    }
}

}  // namespace tarn::protocol
