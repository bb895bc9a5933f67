// Transport: moves bytes from one host to another, and knows nothing of their meaning.
//
// Hosts meet over a Connection: few bytes, one after the other, while they prove who they are. Then it becomes a
// Channel on the shard of their link: bytes in bulk, both ways, whole and in order until it breaks. link/ builds
// messages, greeting, corking and calls on that, once for all transports. TCP is in tcp/;
// tests/unit/transport_conformance_test.cpp says what a transport must do, and runs against each of them.
//
// receive() returns a view of the channel's own memory; for shared memory that is the ring the peer writes into. If the
// caller passes a page, what comes next goes straight into the page.
//
// A new transport is a folder beside tcp/, a Network in the conformance test, and its number below. Hosts find each
// other over TCP; once they know each other, a link moves to the best transport that both have (LinkedFabric).
// daemon/process/node.cpp makes those of a host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "coherence/fabric/transport/remote_memory.hpp"
#include "utils/loop.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

// As hosts say it to each other.
enum class TransportKind : uint8_t { tcp = 0, shm = 1, in_process = 255 };
constexpr const char* name_of(TransportKind kind) {
    switch (kind) {
        case TransportKind::tcp: return "tcp";
        case TransportKind::shm: return "shm";
        case TransportKind::in_process: break;
    }
    return "in process";
}

// Used on the loop that it was made for. One sender and one receiver at a time.
class Channel {
  public:
    virtual ~Channel() = default;

    // Takes as many of the bytes as there is room for, without a wait; maybe none.
    virtual size_t try_send(std::span<const std::byte> bytes) = 0;
    // Takes at least some of the bytes, once there is room. Zero, or an error: the channel broke.
    virtual Task<Result<size_t>> send(std::span<const std::byte> bytes) = 0;

    struct Received {
        size_t page_bytes;                 // at the front of `page`
        std::span<const std::byte> bytes;  // received and not taken yet; valid until the next receive()
    };
    // Returns once bytes have arrived, or the channel broke. taken: how many bytes at the front of the last result are
    // consumed; must be all of them if there is a page for the next bytes. If the buffer is full and none were taken,
    // it grows. Errors: closed, io.
    virtual Task<Result<Received>> receive(std::span<std::byte> page, size_t taken) = 0;

    // The one-sided operations; null if the transport has none.
    virtual RemoteMemory* remote_memory() { return nullptr; }

    // Breaks the channel, on both sides: tasks waiting in send() or receive() go on.
    virtual void shut_down() = 0;
    // Call it before its end, when nobody sends or receives any more.
    virtual Task<> close() = 0;
};

// Used on the fabric's first shard. Not authenticated yet: it is cheap, and may be shut down any time.
class Connection {
  public:
    virtual ~Connection() = default;

    // Call it first, if Transport::open() made the connection. Errors: io, cancelled; invalid (no address of this
    // transport), not_found.
    virtual Task<Result<>> connect() = 0;
    // Both return after some of the bytes; zero: the other side hung up. receive() takes no more than asked. Errors:
    // io, cancelled.
    virtual Task<Result<size_t>> send(std::span<const std::byte> bytes) = 0;
    virtual Task<Result<size_t>> receive(std::span<std::byte> bytes) = 0;

    // Breaks the connection: waiting tasks go on with zero bytes.
    virtual void shut_down() = 0;
    // Ends waiting tasks at once, with cancelled, even if a break is not noticed.
    virtual void cancel() = 0;

    virtual TransportKind kind() const = 0;
    // The other end: peer_name() for the log; origin() is the same for all connections from one network.
    using Origin = std::array<uint8_t, 16>;
    virtual std::string peer_name() const = 0;
    virtual Origin origin() const = 0;
    // The CPU that takes in what the peer sends; none: it is not known, or there is none.
    virtual std::optional<unsigned> incoming_cpu() const { return std::nullopt; }

    // On any loop. From then on the channel owns what this connection owned.
    virtual std::unique_ptr<Channel> become_channel(Loop& loop) = 0;
};

// Used on the fabric's first shard.
class Transport {
  public:
    virtual ~Transport() = default;

    // Returns the next connection that another host has opened to this one. One task waits at a time. Errors:
    // cancelled, after stop(); io: try again later.
    virtual Task<Result<std::unique_ptr<Connection>>> accept() = 0;
    virtual std::unique_ptr<Connection> open(const std::string& address) = 0;
    virtual void stop() = 0;

    virtual TransportKind kind() const = 0;
    // What another host needs to know to open a connection to this one, in at most offer_size_max bytes; empty: it must
    // be configured.
    virtual std::string offer() const { return {}; }
    // For open(): what another host's transport of this kind has offered. None: it cannot be reached from here.
    virtual std::optional<std::string> address_in(const std::string& /*offer*/) const { return std::nullopt; }
    static constexpr size_t offer_size_max = 255;
};

}  // namespace tarn
