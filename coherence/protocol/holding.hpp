// Holding: a holder's record of one page that this host holds, waits for, or keeps for recovery.
#pragma once

#include <optional>

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

// A move, move_shared, copy or drop that this host cannot serve yet, because it overtook the grant that it follows.
struct Successor {
    MessageKind kind{};
    HostId requester = no_host;
    uint8_t flags = 0;
    RequestId request_id = 0;
    FrameId frame = no_frame;  // the requester's
    Tenure tenure = 0;
};

// The request this host waits for. Grant, bytes and acknowledgements come in any order; those of an older tenure belong
// to an order that a resolve has undone.
struct Awaited {
    RequestId request_id = 0;  // 0: none
    Want want{};
    FrameId landing = no_frame;  // lent for the bytes: lent_frame.hpp

    Tenure granted = 0;  // 0: not yet
    bool grants_exclusive = false;
    uint32_t lost = 0;
    bool needs_bytes = false;
    HostSet ackers = 0;

    Tenure heard_tenure = 0;  // the tenure of the next two
    HostSet heard = 0;        // hosts that acknowledged or sent the bytes
    bool has_bytes = false;

    bool complete() const {
        return granted != 0 && (ackers == 0 || heard_tenure == granted) && (ackers & ~heard) == 0 &&
               (!needs_bytes || (heard_tenure == granted && has_bytes));
    }
};

// What this host has of the page.
enum class Custody : uint8_t {
    none,       // no frame
    blank,      // Exclusive without bytes: the first woken operation writes the whole page
    open,       // a frame
    quiescing,  // the executor was asked to bring the frame to rest
    evicting,   // the eviction is sent: the frame is not served until its answer
    bare,       // the eviction is sent, and the frame is gone: the next request waits for its answer
};

// Whether the page's home agrees with that.
enum class Trust : uint8_t {
    confirmed,
    unconfirmed,  // the home, or the link to it, is new: not evicted or written back until the home confirms
    adopted,      // and from the previous process: not served until the home confirms, or an order comes
};

// Whether the frame is evicted as soon as it is quiet, and how.
enum class EvictionWish : uint8_t {
    none,
    wanted,
    at_once,     // without waiting for the answer, if the page is clean
    with_bytes,  // home asked for them
    discards,    // the volume is deleted: dirty bytes are discarded
};

// The eviction that was sent, while Custody is evicting or bare.
struct SentEviction {
    RequestId id = 0;
    DirtyMask dirty = 0;     // when it was sent
    bool says_bare = false;  // it says that the frame is gone
};

struct Holding {
    // What this host holds.
    Custody custody = Custody::none;
    Trust trust = Trust::confirmed;
    Ownership ownership = Ownership::none;
    FrameId frame = no_frame;
    Tenure tenure = 0;
    uint32_t sequence = 0;        // the last write-back's, in this tenure
    uint32_t lost = 0;            // the loss generation in which it last lost writes
    Tenure anchor_since = 0;      // the bytes of this tenure may not have reached home yet, though no mask says so; 0:
                                  // they have
    uint32_t unserved_count = 0;  // woken operations that still lack their access
    EvictionWish wish = EvictionWish::none;
    SentEviction eviction;

    // The answer that this host waits for. `spare` is a free frame for the next request of the waiters.
    Awaited awaited;
    FrameId spare = no_frame;
    RequestId done_due = 0;  // `done` of this request is sent when the woken operations were served; 0: none
    NodeList waiters;        // of Waiter
    NodeList successors;     // of Successor

    // Write-backs without giving up the page. One is under way while somebody waits for it.
    NodeList writing_waiters;  // of Waiter, answered when the write-back on its way is applied
    NodeList write_waiters;    // of Waiter, need another write-back

    // The whole page that this host handed on, for recovery.
    FrameId kept_frame = no_frame;
    Tenure kept_order = 0;
    PageVersion kept_version;

    // The last recall: nothing below is obeyed.
    Tenure floor = 0;
    std::optional<PageVersion> report_due;  // how new home's bytes were at the recall

    // What the arena records of it, for the process that adopts it.
    Adopted recorded() const;

    bool writing_back() const { return !writing_waiters.empty(); }
    bool is_empty() const {
        return custody == Custody::none && kept_frame == no_frame && awaited.request_id == 0 && waiters.empty() &&
               unserved_count == 0 && !report_due;
    }
};

}  // namespace tarn::protocol
