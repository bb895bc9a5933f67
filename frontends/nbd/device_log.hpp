// DeviceLog: what one connection of a kernel's device has in flight, in memory that outlives the process.
//
// The kernel's end of such a connection does not notice that tarnd was killed: both ends of the socket pair stay open,
// and the next process goes on where this one was. For that it must know, to the byte, what was received and sent. The
// kernel itself writes that down: recvmmsg() and sendmmsg() store the lengths of what they did into their argument
// before they return to the process, so before SIGKILL takes effect; and that argument lies in this memory.
//
// Places in the two streams of bytes are counted from the connection's beginning, so that what a store means does not
// depend on those that came before it. A request gets a slot when it was received whole, and keeps it until all of its
// reply was sent. Each step ends with one store that makes it so; a process that was killed has made it or has not.
//
// Received bytes lie in a ring, mapped twice in a row: what is in it is contiguous. The payload of a write stays there
// until the write is finished. One that has to wait is parked beside the ring, so that the ring does not fill up behind
// it.
//
// A reply goes out in parts, each of them in one piece: whoever goes on begins at a part. So no page of a read is half
// of one version and half of another, however the rest of the reply is made.
//
// Belongs to one connection, on one shard at a time. Used by DeviceConnection; the memory is made by DeviceMemory.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "frontends/nbd/request.hpp"
#include "tiers/dram/write_receipts.hpp"

namespace tarn::nbd {

class DeviceLog {
  public:
    // The kernel has half as many requests in flight on a connection, and those of others whose connections broke.
    static constexpr size_t slot_count = 256;
    static constexpr size_t ring_size_bytes = 4 * 1024 * 1024;
    static constexpr size_t parking_size_bytes = 4 * 1024 * 1024;
    static constexpr size_t receive_size_max = 256 * 1024;
    // The ring takes the next one while this one waits.
    static constexpr size_t payload_size_max = ring_size_bytes / 2;
    static_assert(payload_size_max / page_size + 1 <= WriteReceipts::window_pages);
    static constexpr size_t reply_header_size = 16;
    // Of one send.
    static constexpr size_t parts_max = 512;
    static constexpr size_t messages_max = 64;
    // The kernel takes so much of a Unix socket's message at once, or nothing of it.
    static constexpr size_t message_size_max = 32 * 1024;

    enum class State : uint32_t { free, received, done };
    struct Slot {
        std::atomic<State> state;
        std::atomic<uint64_t> begin;  // of the request, in the stream
        Request request;
        Errno error;                       // of its reply, once done
        std::atomic<uint32_t> sent_bytes;  // of the reply
        WriteReceipts receipts;            // of a request that changes pages

        uint32_t reply_size() const {
            return reply_header_size + (request.command == Command::read && error == Errno::none
                                            ? static_cast<uint32_t>(request.size_bytes)
                                            : 0);
        }
    };
    // Bytes of one slot's reply, from `begin` on.
    struct Part {
        uint16_t slot;
        uint32_t begin;
        std::span<const std::byte> bytes;
    };

    // What lies in the memory. All zeros is the log of a connection that has just begun.
    struct Memory {
        std::atomic<uint64_t> parsed;      // what came before has a slot, or had one
        std::atomic<uint64_t> filled;      // so much was received
        std::atomic<uint64_t> ring_begin;  // the place in the stream that lies at the ring's beginning

        mmsghdr receiving;
        uint64_t receiving_from;  // filled, before it
        std::atomic<uint32_t> is_receiving;
        std::atomic<uint32_t> part_count;  // of the send under way; 0: none is
        struct Sending {
            uint16_t slot;
            uint16_t message;
            uint32_t begin;
            uint32_t size;
        };
        std::array<Sending, parts_max> parts;
        std::array<mmsghdr, messages_max> messages;
        std::array<Slot, slot_count> slots;
        std::array<std::atomic<uint32_t>, slot_count>
            parked;  // by slot: the page of its payload, plus 1; 0: in the ring
        alignas(4096) std::array<std::byte, parking_size_bytes> parking;
        alignas(4096) std::array<std::byte, ring_size_bytes> ring;  // and once more behind it
    };

    // For any thread, also while the log is used. Up to which place in the stream requests have a slot, or had one; and
    // whether all requests before such a place are answered.
    static uint64_t parsed(const Memory& memory) { return memory.parsed.load(std::memory_order_acquire); }
    static bool has_answered(const Memory& memory, uint64_t parsed);

    // Settles what a process before left in it. number: names the first slot's receipts, the next number the second's.
    DeviceLog(Memory& memory, uint32_t number);

    // Receives what there is, without waiting. Returns what recvmmsg() did, as recvmsg() would.
    ssize_t receive(int socket);
    bool is_full() const { return room() == 0 || free_.empty(); }
    // How much receive() asks for. Less than that was all there was.
    size_t receivable_bytes() const { return std::min(room(), receive_size_max); }
    // What was received and has no slot: the front of a request, or some of them.
    std::span<const std::byte> unparsed() const;

    // A request with this header and so many bytes behind it. They need not have come yet, if nobody wants them. None:
    // no slot is free, and it stays where it is.
    std::optional<uint16_t> add(const Request& request, size_t payload_bytes);
    // Whether all of it has come.
    bool has_come(uint16_t slot) const;
    std::span<const std::byte> payload(uint16_t slot) const;
    // Takes the payload of a write that will wait out of the ring, if there is a place for it. What payload() has said
    // before is void.
    void park(uint16_t slot);
    // Its effect is there, and this will be its reply.
    void finish(uint16_t slot, Errno error);

    // Sends these parts of replies in their order, as far as the socket takes them, or most of them. Slots whose reply
    // was sent become free.
    enum class Sent : uint8_t { yes, full, broken };
    Sent send(int socket, std::span<const Part> parts);

    const Slot& slot(uint16_t number) const { return memory_.slots[number]; }
    WriteReceipts& receipts(uint16_t number) { return memory_.slots[number].receipts; }
    bool is_free(uint16_t number) const { return slot(number).state.load(std::memory_order_relaxed) == State::free; }
    // Those in use, in the order in which they came.
    std::vector<uint16_t> used() const;

  private:
    uint64_t live_begin() const;
    size_t room() const;
    const std::byte* at(uint64_t place) const {
        return memory_.ring.data() + (place - memory_.ring_begin.load(std::memory_order_relaxed)) % ring_size_bytes;
    }
    void end_receive();
    void end_send();
    bool keeps_payload(const Slot& slot) const;
    bool is_parked(uint16_t number) const { return memory_.parked[number].load(std::memory_order_relaxed) != 0; }
    void mark_parked(uint16_t number, bool is_used);
    void unpark(uint16_t number);

    Memory& memory_;
    const uint32_t number_;
    std::vector<uint16_t> free_;
    std::vector<iovec> vectors_;
    size_t waiting_writes_ = 0;       // whose payload is in the ring
    std::vector<bool> parking_used_;  // by page
    size_t parked_count_ = 0;
    size_t parking_end_ = 0;  // pages that were used since all of them were given back
};

}  // namespace tarn::nbd
