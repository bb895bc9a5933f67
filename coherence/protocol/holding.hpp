// Holding: a holder's record of one page that this host holds, waits for, or keeps for recovery.
#pragma once

#include "coherence/membership/host_set.hpp"
#include "coherence/protocol/event.hpp"
#include "coherence/protocol/node_pool.hpp"
#include "coherence/protocol/page_version.hpp"
#include "tiers/page.hpp"

namespace tarn::protocol {

struct Waiter {
    WaiterToken token = 0;
    Want want{};
};

// A move, move_shared, copy or drop that this host cannot serve yet: it comes before what it follows.
struct Successor {
    MessageKind kind{};
    HostId requester = no_host;
    uint8_t flags = 0;
    RequestId request_id = 0;
    FrameId frame = no_frame;  // the requester's
    Tenure tenure = 0;
};

// The request this host waits for. Grant, bytes and acknowledgements come in any order; those of an older tenure are
// of an order that a resolve has undone.
struct Awaited {
    RequestId request_id = 0;  // 0: none
    Want want{};
    FrameId landing = no_frame;  // lent to whoever sends the bytes

    Tenure granted = 0;  // 0: not yet
    bool grants_exclusive = false;
    uint32_t lost = 0;
    bool needs_bytes = false;
    HostSet ackers = 0;

    Tenure heard_tenure = 0;  // what the next two are about
    HostSet heard = 0;        // who acknowledged or sent the bytes
    bool has_bytes = false;

    bool complete() const {
        return granted != 0 && (ackers == 0 || heard_tenure == granted) && (ackers & ~heard) == 0 &&
               (!needs_bytes || (heard_tenure == granted && has_bytes));
    }
};

struct Holding {
    // What this host holds.
    Ownership ownership = Ownership::none;
    FrameId frame = no_frame;
    Tenure tenure = 0;
    uint32_t sequence = 0;          // of the last write-back of this tenure
    uint32_t lost = 0;              // the loss generation in which it last lost writes
    bool blank = false;             // Exclusive without bytes: the first woken operation writes the whole page
    bool unconfirmed = false;       // the home has restarted, or the link to it: not evicted, not written back until it
                                    // has said so
    bool adopted = false;           // of the process before, and not served until the home has said so, or an order
                                    // has come for it
    Tenure anchor_since = 0;        // the bytes of this tenure may not have reached home yet, though no mask says so;
                                    // 0: they have
    bool evict_wanted = false;      // evict as soon as the frame is quiet
    bool evict_with_bytes = false;  // home asked for them
    bool evicting = false;          // the eviction is sent: not served until its answer
    bool evict_at_once = false;     // without waiting for the answer, if the page is clean
    bool evict_discards = false;    // of a volume that is no more: what is dirty goes with it
    DirtyMask evict_dirty = 0;      // the dirty mask of then
    bool bare = false;              // the eviction is sent, and the frame is gone: the next request waits for its
                                    // answer
    bool bare_is_told = false;      // the eviction said so
    RequestId evict_id = 0;         // of the eviction, while evicting
    bool quiescing = false;         // the executor was asked to bring the frame to rest
    uint32_t unserved_count = 0;    // woken operations that did not have their access yet

    // The answer that this host waits for. `spare` is a free frame for the next request of the waiters.
    Awaited awaited;
    FrameId spare = no_frame;
    bool done_due = false;  // `done` is sent when the woken operations were served
    RequestId done_id = 0;
    NodeList waiters;     // of Waiter
    NodeList successors;  // of Successor

    // Write-back without giving up.
    bool writing_back = false;
    NodeList writing_waiters;  // of Waiter, answered when the write-back on its way is applied
    NodeList write_waiters;    // of Waiter, need another one

    // What this host handed on, whole, for recovery.
    FrameId kept_frame = no_frame;
    Tenure kept_order = 0;
    PageVersion kept_version;

    // The last recall: nothing below is obeyed.
    Tenure floor = 0;
    bool report_due = false;
    PageVersion home_version;  // how new home's bytes were at the recall

    // What the arena says of it, for the process that adopts it.
    Adopted recorded() const;

    bool is_empty() const {
        return frame == no_frame && kept_frame == no_frame && awaited.request_id == 0 && waiters.empty() &&
               unserved_count == 0 && !quiescing && !report_due && !bare;
    }
};

}  // namespace tarn::protocol
