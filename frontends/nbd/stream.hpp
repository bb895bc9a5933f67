// Stream: the bytes of one client's connection, over its socket as they are, or within TLS once that was begun.
//
// What it does not do: wait, except in the negotiation. Plain, each call is the system call of its name, and so is
// send() where the kernel seals (kernel_tls.hpp). Otherwise what send() has taken within TLS is sealed and cannot be
// taken back: the part that the socket had no room for stays here, at most sealed_size_max and a record, until flush()
// has sent it. Nothing here belongs to a loop, so a connection takes its stream along when it changes shards; buffers
// that are large belong to the shard (TlsBuffers).
//
// Belongs to one connection.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "frontends/nbd/socket_reader.hpp"
#include "frontends/nbd/tls_session.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"
#include "utils/unique_fd.hpp"
#include "utils/worker_threads.hpp"

namespace tarn::nbd {

// Of one shard, for its connections within TLS; empty until there is one.
struct TlsBuffers {
    static constexpr size_t incoming_size_bytes = 64 * 1024;
    // The steps of handshakes that a shard has other threads make, each some milliseconds long.
    static constexpr size_t handshakes_max = 2;

    std::vector<std::byte> incoming;  // sealed
    std::vector<std::byte> record;    // of what is to be sealed
    std::vector<std::byte> outgoing;  // sealed
    Semaphore handshakes{handshakes_max};
    WorkerThreads handshake_threads{handshakes_max};
};

// Whether the client has gone away, which it may; everything else is worth a word.
inline bool has_left(const Error& error) {
    return error.code == Errc::closed || error.sys_errno == ECONNRESET || error.sys_errno == EPIPE;
}

class Stream {
  public:
    // One send seals so many bytes at most, so that other connections get their turn.
    static constexpr size_t send_size_max = 1024 * 1024;
    // One receive within TLS takes so many sealed bytes off the socket at most, for the same reason: records may be
    // small, or hold nothing for us, and so fill no room.
    static constexpr size_t receive_size_max = 256 * 1024;
    // What is sealed, but for the record that exceeds it, before the socket is asked to take it.
    static constexpr size_t sealed_size_max = 64 * 1024;

    explicit Stream(UniqueFd socket) : socket_(std::move(socket)), reader_(socket_.get()) {}

    int socket() const { return socket_.get(); }
    void close() { socket_.reset(); }

    // As recvmsg(), without waiting. Less than there was room for was all there was, unless may_have_more(). late,
    // scratch: see SocketReader. EPROTO: the client has broken TLS's rules, and trouble() says how.
    ssize_t receive(msghdr& message, bool late, std::span<std::byte> scratch, TlsBuffers& buffers) {
        return tls_ ? receive_sealed(message, buffers) : reader_.receive(message, late, scratch);
    }
    // The last receive ended at receive_size_max, whatever it returned.
    bool may_have_more() const { return may_have_more_; }
    // Takes what was only looked at.
    void take(std::span<std::byte> scratch) { reader_.take(scratch); }
    size_t looked_at_bytes() const { return reader_.looked_at_bytes(); }
    // The client has said within TLS that no more comes.
    bool has_ended() const { return tls_ && tls_->ended(); }

    // As sendmsg(), without waiting.
    ssize_t send(std::span<const iovec> vectors, TlsBuffers& buffers);
    // Sends what send() had taken. False: not all of it; errno says why, EAGAIN: the socket is full.
    bool flush() { return is_flushed() || send_sealed(); }
    bool is_flushed() const { return !tls_ || tls_->output().empty(); }

    // In the negotiation. Errors: io, cancelled, protocol.
    Task<Result<size_t>> receive(Loop& loop, std::span<std::byte> into, TlsBuffers& buffers);
    Task<Result<>> send_all(Loop& loop, std::span<const std::byte> bytes, TlsBuffers& buffers);

    // Everything from here on is within TLS. is_given_up: is asked before each step, of which many may wait for their
    // turn. Errors: refused (trouble() says why), io, closed, cancelled.
    Task<Result<>> begin_tls(
        Loop& loop, std::shared_ptr<const TlsCredentials> credentials, TlsBuffers& buffers,
        std::function<bool()> is_given_up = [] { return false; });
    bool is_tls() const { return tls_ != nullptr; }
    const TlsSession& tls() const { return *tls_; }
    std::string_view trouble() const { return tls_ ? std::string_view(tls_->why()) : std::string_view(); }

    // Before close(): says within TLS that this is the end. waits: also until the client has closed its side, because
    // what it still sends would otherwise make the kernel throw away what it has not read yet. Its end, or a shutdown()
    // of the socket, ends the wait.
    Task<> say_end(Loop& loop, bool waits);

  private:
    // What one receive has on its way from the socket to the client's bytes.
    struct Incoming {
        std::span<const std::byte> sealed;     // taken off the socket and not opened yet
        size_t rest_bytes = receive_size_max;  // that may be taken off it
        bool is_drained = false;
    };

    ssize_t receive_sealed(msghdr& message, TlsBuffers& buffers);
    ssize_t fill(std::span<std::byte> into, Incoming& incoming, TlsBuffers& buffers);
    ssize_t seal_and_send(std::span<const iovec> vectors, TlsBuffers& buffers);
    bool send_sealed();
    Task<Result<>> send_rest(Loop& loop);

    UniqueFd socket_;
    SocketReader reader_;
    std::unique_ptr<TlsSession> tls_;
    bool may_have_more_ = false;
};

}  // namespace tarn::nbd
