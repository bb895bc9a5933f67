// Claim: home's record of one page that somebody holds or waits for. Without one, home's bytes are current.
#pragma once

#include "coherence/membership/host_set.hpp"
#include "coherence/protocol/message.hpp"
#include "coherence/protocol/node_pool.hpp"
#include "coherence/protocol/page_version.hpp"
#include "tiers/page.hpp"

namespace tarn::protocol {

// A host's request. It is queued while the page is being resolved, then ordered, and open until its requester is done.
struct Request {
    MessageKind kind{};  // get_shared, get_exclusive, get_exclusive_no_read
    HostId requester = no_host;
    RequestId request_id = 0;
    FrameId frame = no_frame;

    // Once ordered:
    Tenure tenure = 0;
    HostId source = no_host;  // who sends the bytes; no_host: home, or nobody
    HostId keeper = no_host;  // who keeps the whole page until this is done and its home copy applied
    HostSet ackers = 0;

    HostSet hosts() const { return set_of(requester) | set_of(source) | set_of(keeper) | ackers; }
};

// Bytes that an order sent on their way home: one per `move` and per `drop` to the anchor.
struct HomeCopy {
    Tenure tenure = 0;  // the order's
    HostId host = no_host;
    bool clean = false;  // the holder wrote nothing; the entry waits for the copies before it
};

struct Claim {
    Tenure tenure = 0;
    HostId owner = no_host;
    HostId anchor = no_host;  // the reader that must keep the bytes as long as home lacks them
    HostSet readers = 0;
    PageVersion applied;  // how new home's own bytes are

    NodeList orders;  // of Request, in tenure order, until done
    NodeList queue;   // of Request, in order of arrival
    NodeList copies;  // of HomeCopy, in tenure order, until applied

    bool resolving = false;
    bool marking = false;       // the first of the queue waits until the page is marked
    bool loss_pending = false;  // the loss generation must be durable before the page is served again
    HostSet missing = 0;        // whose reports the resolve waits for
    HostSet recalled = 0;
    HostSet keepers = 0;          // while home recovers: hosts that reported kept bytes
    HostSet dismissed = 0;        // hosts whose older kept bytes home rejected: they may not know it
    bool stored_unknown = false;  // while home recovers: the store has bytes of some tenure
    // While home recovers: the least and the greatest tenure that a holder has reported.
    Tenure oldest_held = tenure_end;
    Tenure newest_held = 0;
    HostId booked = no_host;  // the host in the flush books: the owner, or the anchor

    // Nobody may write without home's order, and all earlier writes are here.
    bool home_has_bytes() const { return owner == no_host && applied >= last_before(tenure); }
    HostSet holders() const { return readers | set_of(owner) | set_of(anchor); }
};

}  // namespace tarn::protocol
