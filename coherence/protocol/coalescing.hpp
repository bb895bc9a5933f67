// Coalescing: messages to one host that travel as one. Nothing of what is said changes: a stripe hears of each page,
// and of a grant and its bytes, by itself.
//
//   run     messages without bytes about neighbouring pages that say the same, with request ids that follow each other:
//           one message, which counts the others (Message::run). All of one block of pages, and so of one stripe
//   batch   such runs, or single pages, wherever they lie, that differ in page, tenure, request id, sequence and age
//           only: the message of the first, and behind it a Part for each of the others (Message::parts)
//   joined  a grant of bytes that the holder beside home has, and its `data`: a grant that names home as the source and
//           has bytes is both
//
// Senders join what has not left yet; who receives takes it apart before anybody looks at it. Pure: the executors of
// real hosts and of simulated ones use the same.
#pragma once

#include <span>

#include "coherence/protocol/message.hpp"

namespace tarn::protocol {

// One more run of a batch, the same in memory and on the wire.
struct Part {
    PageId page{};
    Tenure tenure = 0;
    RequestId request_id = 0;
    uint32_t sequence = 0;
    uint32_t age = 0;  // Message::hosts of an eviction
    uint32_t run = 0;
};
static_assert(sizeof(Part) == 32 && std::is_trivially_copyable_v<Part>);

// What is to be sent to one host, as far as it may still grow: the last message that has not left.
class Batch {
  public:
    // This was sent just now.
    void begin(const Message& message);
    // It left, or something else was sent after it.
    void end() { open_ = false; }
    bool is_open() const { return open_; }

    // Makes `next`, which is to be sent now, a part of it. no: it cannot be, and is sent by itself. run: message() has
    // changed, and the last of its parts, if it has any. part: message() has changed, and last_part() is new.
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

// The other way. Of a message with its parts, the run of this index, from 0 to their number: a message without parts.
Message run_of(const Message& message, std::span<const Part> parts, size_t index) noexcept;
// Of a run, what it says of the page of this index, from 0 to Message::run.
Message part_of(const Message& run, uint32_t index) noexcept;
// Refuses a message with parts that no correct host sends: each of its runs must be valid, and all together not too
// many pages.
Result<> validate(const Message& message, std::span<const Part> parts);

inline bool is_joined(const Message& message) {
    return message.kind == MessageKind::grant && message.host == message.from && message.has_bytes();
}
Message grant_of_joined(const Message& message) noexcept;
Message data_of_joined(const Message& message) noexcept;

// The grant that a step gave, whose bytes may come from the same step.
class PendingGrant {
  public:
    static bool is_worth_holding(const Message& message, HostId self) {
        return message.kind == MessageKind::grant && message.host == self;
    }
    bool holds() const { return to_ != no_host; }
    // Instead of sending it. What was held before must be gone.
    void hold(HostId to, const Message& grant);
    // Before `data` is sent to a host: if it brings what the held grant promises, it becomes both, and nothing is held.
    bool join(HostId to, Message& data);
    // At the end of the step, or before another is held: what is to be sent, and to whom.
    struct Sent {
        HostId to;
        Message message;
    };
    Sent release();

  private:
    HostId to_ = no_host;
    Message grant_;
};

}  // namespace tarn::protocol
