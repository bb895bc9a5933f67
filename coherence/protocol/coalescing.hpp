// Coalescing: joins messages to one host. It changes nothing for the protocol: a stripe gets each page's message, and a
// grant and its bytes, by itself.
//
//   run     messages without bytes about neighbouring pages that say the same, with request ids that follow each other:
//           one message, which counts the others (Message::run). All of one block of pages, and so of one stripe
//   batch   such runs, or single pages, wherever they lie, that differ in page, tenure, request id, sequence and age
//           only: the message of the first, and behind it a Part for each of the others (Message::parts)
//   joined  a grant of bytes that the holder beside home has, and its `data`: a grant that names home as the source and
//           has bytes is both
//
// Senders join messages that have not left yet; the receiver takes them apart before anybody looks at them. Pure: real
// and simulated hosts use the same code.
#pragma once

#include <span>
#include <utility>

#include "coherence/protocol/message.hpp"

namespace tarn::protocol {

// A further run of a batch, the same in memory and on the wire.
struct Part {
    PageId page{};
    Tenure tenure = 0;
    RequestId request_id = 0;
    uint32_t sequence = 0;
    uint32_t age = 0;  // Message::hosts of an eviction
    uint32_t run = 0;
};
static_assert(sizeof(Part) == 32 && std::is_trivially_copyable_v<Part>);

// The last unsent message to a host, which later messages may join.
class Batch {
  public:
    // This message was just sent.
    void begin(const Message& message);
    // The message left, or something else was sent after it.
    void end() { open_ = false; }
    bool is_open() const { return open_; }

    // Joins `next`, which is to be sent now. no: it cannot be joined, and is sent by itself. run: message() has
    // changed, and its last part, if any. part: message() has changed, and last_part() is new.
    enum class Joined : uint8_t { no, run, part };
    Joined join(const Message& next);
    const Message& message() const { return message_; }
    const Part& last_part() const { return last_part_; }

  private:
    bool open_ = false;
    uint32_t page_count_ = 0;
    Message message_;
    Message last_run_;
    Part last_part_;
};

// The reverse: the run of this index, from 0 to the number of parts, as a message without parts.
Message run_of(const Message& message, std::span<const Part> parts, size_t index) noexcept;
// What a run says of its page of this index, from 0 to Message::run.
Message part_of(const Message& run, uint32_t index) noexcept;
// Refuses parts that no correct host sends: each run must be valid, and all together must not have too many pages.
Result<> validate(const Message& message, std::span<const Part> parts);

inline bool is_joined(const Message& message) {
    return message.kind == MessageKind::grant && message.host == message.from && message.has_bytes();
}
Message grant_of_joined(const Message& message) noexcept;
Message data_of_joined(const Message& message) noexcept;

// Holds the grant of a step, since its bytes may come from the same step.
class PendingGrant {
  public:
    static bool is_worth_holding(const Message& message, HostId self) {
        return message.kind == MessageKind::grant && message.host == self;
    }
    bool holds() const { return to_ != no_host; }
    // Holds the grant instead of sending it. No other may be held.
    void hold(HostId to, const Message& grant);
    // Call it before `data` is sent to a host: if these are the held grant's bytes, it becomes both, and nothing is
    // held.
    bool join(HostId to, Message& data);
    // At the end of the step, or before another grant is held: the grant to send, and its receiver.
    std::pair<HostId, Message> release();

  private:
    HostId to_ = no_host;
    Message grant_;
};

}  // namespace tarn::protocol
