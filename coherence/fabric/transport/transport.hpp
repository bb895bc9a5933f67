// Transport: how bytes get from one host to another, and nothing of what they mean.
//
// Hosts meet over a Connection: few bytes, one after the other, while they prove who they are. Then it becomes a
// Channel on the shard of their link: bytes in bulk, both ways, whole and in order until it breaks. Messages, greeting,
// corking and calls are made of that once, in link/. TCP is in tcp/; what a transport must do is told by
// tests/unit/transport_conformance_test.cpp, which is run against each of them.
//
// A channel receives into memory of its own, and hands that out: a ring that the peer writes into is read in place.
// What has not come yet of a page goes straight into the page.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "coherence/fabric/transport/remote_memory.hpp"
#include "utils/loop.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

// On the loop that it was made for. One sender and one receiver at a time.
class Channel {
  public:
    virtual ~Channel() = default;

    // Takes of the bytes what there is room for, without a wait; maybe nothing.
    virtual size_t try_send(std::span<const std::byte> bytes) = 0;
    // Takes at least some of them, once there is room. Nothing, or an error: it broke.
    virtual Task<Result<size_t>> send(std::span<const std::byte> bytes) = 0;

    struct Received {
        size_t page_bytes;                 // at the front of `page`
        std::span<const std::byte> bytes;  // all that has come since and is not taken; until the next receive()
    };
    // Once something has come, or the channel broke. taken: how many bytes at the front of the last answer's are done
    // with; all of them, if there is a page for what comes first. If it can hold no more, and none were taken, it makes
    // room for more. Errors: closed, io.
    virtual Task<Result<Received>> receive(std::span<std::byte> page, size_t taken) = 0;

    // The one-sided operations; null if the transport has none.
    virtual RemoteMemory* remote_memory() { return nullptr; }

    // Breaks it, on both sides: who waits in send() or receive() goes on.
    virtual void shut_down() = 0;
    // Before its end, when nobody sends or receives any more.
    virtual Task<> close() = 0;
};

// On the fabric's first shard. What nobody has proved may come over it: it costs little, and may be shut down any time.
class Connection {
  public:
    virtual ~Connection() = default;

    // First of all, if Transport::open() made it. Errors: io, cancelled.
    virtual Task<Result<>> connect() = 0;
    // Some of the bytes; nothing: the other side hung up. No more is received than is asked for. Errors: io, cancelled.
    virtual Task<Result<size_t>> send(std::span<const std::byte> bytes) = 0;
    virtual Task<Result<size_t>> receive(std::span<std::byte> bytes) = 0;

    // Breaks it: who waits goes on, with nothing.
    virtual void shut_down() = 0;
    // Ends what waits on it at once, with cancelled, also where a break is not noticed.
    virtual void cancel() = 0;

    // Who is at the other end: for the log, and alike for all that one machine or its neighbours may open.
    using Origin = std::array<uint8_t, 16>;
    virtual std::string peer_name() const = 0;
    virtual Origin origin() const = 0;

    // On any loop: what this connection was is the channel's from then on.
    virtual std::unique_ptr<Channel> become_channel(Loop& loop) = 0;
};

// On the fabric's first shard.
class Transport {
  public:
    virtual ~Transport() = default;

    // The next connection that another host has opened to this one. One waits at a time. Errors: cancelled, after
    // stop(); io: try again later.
    virtual Task<Result<std::unique_ptr<Connection>>> accept() = 0;
    // Errors: invalid (no address of this transport), not_found.
    virtual Result<std::unique_ptr<Connection>> open(const std::string& address) = 0;
    virtual void stop() = 0;
};

}  // namespace tarn
