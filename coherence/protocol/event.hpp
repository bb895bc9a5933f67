// Event: what happens to a stripe. The executor fills one in and gives it to Stripe::on() under the stripe's latch.
//
// Every event is delivered exactly once. Messages come decoded (message.hpp), from the peer's present incarnation, and
// never before the peer's hello messages for this link were all delivered; besides that, in any order.
#pragma once

#include <cstdint>

#include "coherence/protocol/loss_ranges.hpp"
#include "coherence/protocol/message.hpp"
#include "tiers/page.hpp"

namespace tarn {
class PageReceipt;
}

namespace tarn::protocol {

enum class Ownership : uint8_t { none, shared, exclusive };

enum class Want : uint8_t {
    shared,
    exclusive,
    exclusive_no_read,  // the whole page will be written from bytes already received; cannot be cancelled
};

// The store has bytes of the page, of an unknown tenure.
inline constexpr Tenure unknown_tenure = ~Tenure{0};

// What a frame of the previous process held, by its arena; for recovery, and not served until the home confirms it.
struct FrameHeld {
    FrameId frame = no_frame;
    Ownership ownership = Ownership::none;  // none: kept bytes, of the order `order`
    Tenure order = 0;
    Tenure tenure = 0;  // with sequence: the frame's, or the version of the kept bytes
    uint32_t sequence = 0;
    uint32_t lost = 0;
    RequestId evict_id = 0;  // 0: no eviction was under way
    Tenure anchor_since = 0;
    DirtyMask dirty = 0;
};
struct Adopted {
    FrameHeld held;
    FrameHeld kept;
};

using WaiterToken = uint64_t;  // has a meaning only for the executor

struct Event {
    enum class Kind : uint8_t {
        // Local threads, to the Holder.
        acquire,  // page, want, waiter, frame (free, now ours; comes back by release_frame if it is not needed)
        served,   // page: one woken operation has had its access; once per wake that did not fail
        cancel,   // page, waiter: nobody waits any more; ignored for waiters already woken, and for exclusive_no_read
        evict,  // page, at_once, discard: a hint from replacement; without effect on a page that is busy, waited for or
                // written back
        write_back,  // page, waiter: answered by one `written` action with that waiter, when home has (or counts) the
                     // bytes
        quiesced,    // page, dirty: answers the action quiesce: no local latch is on the frame and none can be taken;
                     // dirty is the union of its dirty and writing masks

        // The network.
        message,  // message; frame: where its payload lies (with flag_zero: a cleared frame); no_space, store_failed,
                  // stored_tenure.
                  // A frame of the receiver's own is taken over or released; for grant and data it may instead be
                  // the lent frame, if the bytes were copied into it in this very step (lent_frame.hpp)
        peer_up,  // host, process, previous (the one that was met before): a new link to this host; see Stripe
        peer_greeted,  // host: what that host sends to this one from now on comes here, unless the link breaks; before,
                       // its side of the link may not have been up
        host_forgotten,  // host: an operator vouches that it is dead: bytes that only it had are lost, and nobody waits
                         // for it. The executor accepts no link of that incarnation any more
        volume_unknown,  // page: its volume never existed: claims that peers made on its pages are dropped
        adopted,    // page, process (of this host), adopted, stored_tenure, stored_sequence: what the previous process
                    // held of a page. Before anything else
        recovered,  // has_memory, losses: every peer's hello messages were delivered since this home started: it may
                    // serve

        // The store.
        loss_recorded,  // page, loss_generation: the action record_loss is durable
        marked,         // page, store_failed: the action mark has ended
    };

    Kind kind{};
    Want want{};
    DirtyMask dirty = 0;
    HostId host = no_host;
    FrameId frame = no_frame;
    bool borrowed = false;  // the payload is a frame of the Holder of this very stripe: to be copied, not taken over
    bool no_space = false;  // message get_exclusive…: the store cannot reserve room for this page
    bool store_failed =
        false;  // marked, message get_exclusive…, evict, write_back, home_copy: the store takes nothing any more
    bool wants_copy = false;  // message evict: home's memory would rather have this page than its own coldest
    bool at_once = false;     // evict: a clean page that home has goes before home has answered, if it ever does
    bool discard = false;     // evict: nobody will ever use it again, anywhere: as at_once, whatever is dirty
    Process process{};
    Process previous{};
    const Adopted* adopted = nullptr;
    PageReceipt* receipt = nullptr;  // served: of the write of a blank page; means nothing to the protocol
    uint32_t loss_generation = 0;
    Tenure stored_tenure = 0;  // message hello, adopted: of home's bytes, 0 if never written or zeroed; or unknown
    uint32_t stored_sequence = 0;
    bool has_memory = false;             // recovered: the memory was adopted, and no other host lost its own meanwhile
    const LossRanges* losses = nullptr;  // recovered: those on record at that time; they outlive the home
    PageId page{};
    WaiterToken waiter = 0;
    Message message{};

    // waiter: of cancel, write_back
    static Event about(Kind kind, PageId page, WaiterToken waiter = 0) {
        return {.kind = kind, .page = page, .waiter = waiter};
    }
    static Event acquire_of(PageId page, Want want, WaiterToken waiter, FrameId frame) {
        return {.kind = Kind::acquire, .want = want, .frame = frame, .page = page, .waiter = waiter};
    }
    static Event evict_at_once(PageId page) { return {.kind = Kind::evict, .at_once = true, .page = page}; }
    static Event discard_of(PageId page) {
        return {.kind = Kind::evict, .at_once = true, .discard = true, .page = page};
    }
    static Event quiesced_of(PageId page, DirtyMask dirty) {
        return {.kind = Kind::quiesced, .dirty = dirty, .page = page};
    }
    static Event message_of(const Message& message, FrameId frame = no_frame) {
        return {.kind = Kind::message, .frame = frame, .page = message.page, .message = message};
    }
    static Event loss_recorded_of(PageId page, uint32_t loss_generation) {
        return {.kind = Kind::loss_recorded, .loss_generation = loss_generation, .page = page};
    }
    static Event marked_of(PageId page, bool store_failed) {
        return {.kind = Kind::marked, .store_failed = store_failed, .page = page};
    }
    static Event host_forgotten_of(HostId host) { return {.kind = Kind::host_forgotten, .host = host}; }
    static Event volume_unknown_of(VolumeId volume) { return about(Kind::volume_unknown, PageId::of(volume, 0)); }
    static Event peer_greeted_of(HostId host) { return {.kind = Kind::peer_greeted, .host = host}; }
    static Event peer_up_of(HostId host, Process process, Process previous) {
        return {.kind = Kind::peer_up, .host = host, .process = process, .previous = previous};
    }
};

}  // namespace tarn::protocol
