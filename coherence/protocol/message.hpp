// Message: the 64 bytes that hosts exchange about a page, the same in memory and on the wire (little-endian).
//
// Home and Holder fill in the fields of the protocol; the executor stamps the rest when it sends (version, epochs,
// incarnation, loss generation). A page that travels with a message follows it on the channel, always whole; `dirty`
// says which of its sectors the store does not have, for the journal.
//
// decode() checks what comes off the network and refuses it with an error, never an assertion. Handlers still assume
// that any message may be late, stale or unexpected, since none relies on order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "coherence/membership/host_set.hpp"
#include "coherence/membership/process.hpp"
#include "coherence/protocol/page_version.hpp"
#include "tiers/page.hpp"
#include "utils/result.hpp"

namespace tarn::protocol {

inline constexpr uint8_t message_version = 3;

using RequestId = uint32_t;  // counted per stripe of the requester, 0 = none; it only tells apart requests for one page

enum class MessageKind : uint8_t {
    // A host to the home of the page. request_id and frame: the requester's, kept for the answer.
    get_shared = 1,
    get_exclusive,
    get_exclusive_no_read,  // the whole page will be written: no bytes are wanted
    done,                   // tenure, request_id: the order is complete and its operations were served
    evict,                  // tenure, sequence, request_id (of this eviction); payload if dirty, or asked for;
                            // hosts: how long ago the page was used, in access epochs (of the executor)
    home_copy,              // tenure of the order that took the page (or its Exclusive) away; payload, or none if clean
    write_back,             // tenure, sequence; payload
    report,                 // answers recall: tenure; request_id awaited; hosts and sequence: version of the payload
    resolve,                // request_id: what this request waits for may be lost
    hello,                  // what the sender has of a page after a new link; see holder_recovery.cpp
    flush,                  // page: the volume; request_id; hosts, tenure: verifiers noted and known
    flush_answer,           // request_id of the ask

    // Home to a host.
    grant = 32,    // tenure; request_id; hosts: who will acknowledge; host: who sends the bytes; payload if home does;
                   // sequence: the loss generation in which the page last lost writes, 0: never
    move,          // tenure; host, request_id, frame: the requester
    move_shared,   // the same, but the owner stays a reader
    copy,          // the same, to the anchor, who stays what it is
    drop,          // the same, to a reader; flag_anchor: answer home too; flag_bytes: send the page as well
    evicted,       // request_id of the eviction
    refused,       // request_id of the eviction: keep the page; flag_bytes: evict it again, with its bytes; flag_lost:
                   // home's store failed, and takes none
    free,          // tenure: bytes kept for orders up to this one are no longer needed
    recall,        // tenure; hosts, sequence: the version of home's own bytes
    confirm,       // tenure: the frame stays valid under this one
    written_back,  // tenure, sequence
    no_space,      // request_id: the volume's home cannot take this page; flag_lost: its store failed
    flush_ask,     // page: the volume; request_id of the ask
    flushed,       // request_id; flag_lost: a write the flush should cover may be lost

    // A host to the host whose request it serves.
    data = 64,    // tenure, request_id, frame; payload
    acknowledge,  // tenure, request_id
};

enum MessageFlag : uint8_t {
    flag_payload = 1 << 0,  // a page follows
    flag_zero = 1 << 1,     // the page is all zeros: nothing follows, the receiver clears the frame
    flag_anchor = 1 << 2,   // drop: home lacks the bytes and wants an answer of its own
    flag_bytes = 1 << 3,    // drop, move: the requester wants the bytes, not only an acknowledgement; hello: kept ones
    flag_exclusive = 1 << 4,  // grant, hello: Exclusive, not Shared
    flag_shared = 1 << 5,     // hello: the sender holds the page Shared
    flag_evicting = 1 << 6,   // hello: an eviction of it is unanswered; evict: the frame is gone already
    flag_lost = 1 << 7,       // flushed; with flag_zero: nobody can read the page, and accesses to it fail
};

struct Message {
    uint8_t version = message_version;
    MessageKind kind{};
    HostId from = no_host;
    HostId host = no_host;  // grant: the source of the bytes; move, copy, drop: the requester
    uint8_t flags = 0;
    DirtyMask dirty = 0;
    uint16_t reserved = 0;  // 0
    uint32_t view_epoch = 0;
    uint32_t map_epoch = 0;
    Incarnation incarnation = 0;   // the sender's
    uint32_t loss_generation = 0;  // the sender's as a home, half of its write verifier
    RequestId request_id = 0;
    uint32_t sequence = 0;
    PageId page{};
    Tenure tenure = 0;
    HostSet hosts = 0;
    FrameId frame = no_frame;  // at the requester: where the bytes may be placed
    uint16_t run = 0;          // it says the same of this many following pages, see coalescing.hpp
    uint16_t parts = 0;        // and this many further runs, whose Parts follow on the channel

    bool has(MessageFlag flag) const { return (flags & flag) != 0; }
    bool has_bytes() const { return (flags & (flag_payload | flag_zero)) != 0; }
};

static_assert(std::endian::native == std::endian::little, "the wire is little-endian and Message is the wire");
static_assert(sizeof(Message) == 64);
static_assert(offsetof(Message, view_epoch) == 8);
static_assert(offsetof(Message, incarnation) == 16);
static_assert(offsetof(Message, request_id) == 24);
static_assert(offsetof(Message, page) == 32);
static_assert(offsetof(Message, tenure) == 40);
static_assert(offsetof(Message, hosts) == 48);
static_assert(offsetof(Message, frame) == 56);
static_assert(std::is_trivially_copyable_v<Message> && std::is_standard_layout_v<Message>);

const char* to_string(MessageKind kind) noexcept;

// Whether it goes to the receiver's Home, else to its Holder. Flush messages go to neither (flush.hpp).
bool is_for_home(MessageKind kind) noexcept;
bool is_from_home(MessageKind kind) noexcept;  // and thus carries home's verifier
bool is_about_flush(MessageKind kind) noexcept;
// Nobody waits for it: it may travel with the next message to the same host, if that comes soon.
bool may_wait(MessageKind kind) noexcept;

// Messages of this kind may stand for others that say the same of other pages, unless they carry bytes.
bool may_be_joined(MessageKind kind) noexcept;

// A run lies in one block of this many pages, and so in one stripe.
inline constexpr uint32_t run_pages_max = 16;
// The most pages that a message stands for, including its parts.
inline constexpr uint32_t joined_pages_max = 256;

// Refuses what no correct host sends: another version, an unknown kind, impossible hosts and pages. The parts that
// follow a message are checked with it (coalescing.hpp).
Result<> validate(const Message& message);
Result<Message> decode(std::span<const std::byte, sizeof(Message)> bytes);

}  // namespace tarn::protocol
