#include "frontends/nbd/stream.hpp"

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "frontends/nbd/kernel_tls.hpp"
#include "frontends/nbd/wire.hpp"

namespace tarn::nbd {

namespace {

// Of a handshake, and what is thrown away at the end.
constexpr size_t small_receive_size = 4096;

// Takes bytes off the front of vectors, up to a record at a time.
class Records {
  public:
    explicit Records(std::span<const iovec> vectors) : vectors_(vectors) { skip_empty(); }

    bool empty() const { return vectors_.empty(); }
    // Where the bytes of a record do not lie together they are copied to scratch.
    std::span<const std::byte> next(std::vector<std::byte>& scratch) {
        if (rest().size() >= TlsSession::record_size_max || vectors_.size() == 1) {
            const auto record = rest().first(std::min(rest().size(), TlsSession::record_size_max));
            take(record.size());
            return record;
        }
        scratch.resize(TlsSession::record_size_max);
        size_t size = 0;
        while (!empty() && size < scratch.size()) {
            const auto part = rest().first(std::min(rest().size(), scratch.size() - size));
            std::memcpy(scratch.data() + size, part.data(), part.size());
            size += part.size();
            take(part.size());
        }
        return std::span<const std::byte>(scratch).first(size);
    }

  private:
    std::span<const std::byte> rest() const {
        const iovec& vector = vectors_.front();
        return std::span(static_cast<const std::byte*>(vector.iov_base), vector.iov_len).subspan(taken_);
    }
    void take(size_t bytes) {
        taken_ += bytes;
        skip_empty();
    }
    void skip_empty() {
        while (!vectors_.empty() && taken_ == vectors_.front().iov_len) {
            vectors_ = vectors_.subspan(1);
            taken_ = 0;
        }
    }

    std::span<const iovec> vectors_;
    size_t taken_ = 0;
};

// The records of a handshake that have come whole: of less GnuTLS makes nothing.
class WholeRecords {
  public:
    void add(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            if (header_size_ < header_.size()) {
                header_[header_size_++] = bytes.front();
                bytes = bytes.subspan(1);
                if (header_size_ == header_.size()) rest_bytes_ = load_big<uint16_t>(header_.data() + 3);
                if (rest_bytes_ > sealed_record_size_max) ++count_;  // GnuTLS refuses it
            } else {
                const size_t size = std::min(rest_bytes_, bytes.size());
                rest_bytes_ -= size;
                bytes = bytes.subspan(size);
            }
            if (header_size_ == header_.size() && rest_bytes_ == 0) {
                header_size_ = 0;
                ++count_;
            }
        }
    }
    // Whether there were some since the last time.
    bool take() { return std::exchange(count_, 0) > 0; }

  private:
    static constexpr size_t sealed_record_size_max = TlsSession::record_size_max + 2048;

    std::array<std::byte, 5> header_{};  // type, version, size
    size_t header_size_ = 0;
    size_t rest_bytes_ = 0;
    size_t count_ = 0;
};

}  // namespace

ssize_t Stream::receive_sealed(msghdr& message, TlsBuffers& buffers) {
    Incoming incoming;
    size_t received = 0;
    ssize_t count = 0;
    for (const iovec& vector : std::span(message.msg_iov, message.msg_iovlen)) {
        const std::span<std::byte> into(static_cast<std::byte*>(vector.iov_base), vector.iov_len);
        count = fill(into, incoming, buffers);
        if (count > 0) received += static_cast<size_t>(count);
        if (count < static_cast<ssize_t>(into.size())) break;
    }
    const int error = errno;
    tls_->keep(incoming.sealed);
    may_have_more_ = !incoming.is_drained && incoming.rest_bytes == 0;
    if (!is_flushed()) send_sealed();  // new keys that the client asked for, or why this is the end
    errno = error;
    const bool is_broken = count < 0 && error != EAGAIN;
    if (is_broken || (count < 0 && received == 0)) return -1;
    return static_cast<ssize_t>(received);
}

// Fills it as far as there are bytes. Less: is_drained, nothing more may be taken, the end, or -1 and errno.
ssize_t Stream::fill(std::span<std::byte> into, Incoming& incoming, TlsBuffers& buffers) {
    size_t filled = 0;
    while (filled < into.size()) {
        const Result<size_t> opened = tls_->open(incoming.sealed, into.subspan(filled));
        if (!opened) {
            errno = EPROTO;
            return -1;
        }
        filled += *opened;
        if (*opened > 0) continue;
        if (tls_->ended()) break;
        ssize_t count = -1;
        errno = EAGAIN;
        buffers.incoming.resize(TlsBuffers::incoming_size_bytes);
        const size_t room_bytes = std::min(buffers.incoming.size(), incoming.rest_bytes);
        if (!incoming.is_drained && room_bytes > 0)
            count = ::recv(socket(), buffers.incoming.data(), room_bytes, MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno != EAGAIN || filled == 0)) return -1;
        if (count <= 0) break;
        incoming.is_drained = static_cast<size_t>(count) < room_bytes;
        incoming.rest_bytes -= static_cast<size_t>(count);
        incoming.sealed = std::span<const std::byte>(buffers.incoming).first(static_cast<size_t>(count));
    }
    return static_cast<ssize_t>(filled);
}

ssize_t Stream::send(std::span<const iovec> vectors, TlsBuffers& buffers) {
    if (tls_ && !tls_->is_sealed_by_kernel()) return seal_and_send(vectors, buffers);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors.data());
    message.msg_iovlen = vectors.size();
    return ::sendmsg(socket(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t Stream::seal_and_send(std::span<const iovec> vectors, TlsBuffers& buffers) {
    if (!flush()) return -1;
    size_t taken = 0;
    Records records(vectors);
    // Sealed in the shard's buffer, of which only what the socket does not take is copied.
    while (!records.empty() && is_flushed() && taken < send_size_max) {
        buffers.outgoing.clear();
        while (!records.empty() && buffers.outgoing.size() < sealed_size_max) {
            const std::span<const std::byte> record = records.next(buffers.record);
            if (!tls_->seal(record, buffers.outgoing)) {
                errno = EPROTO;
                return -1;
            }
            taken += record.size();
        }
        const ssize_t count =
            ::send(socket(), buffers.outgoing.data(), buffers.outgoing.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN && errno != EINTR) return -1;
        const auto sent =
            std::span<const std::byte>(buffers.outgoing).subspan(static_cast<size_t>(std::max<ssize_t>(count, 0)));
        tls_->output().assign(sent.begin(), sent.end());
    }
    return static_cast<ssize_t>(taken);
}

bool Stream::send_sealed() {
    std::vector<std::byte>& output = tls_->output();
    const ssize_t count = ::send(socket(), output.data(), output.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) errno = EAGAIN;
    if (count < 0) return false;
    output.erase(output.begin(), output.begin() + count);
    if (output.empty()) output.shrink_to_fit();
    errno = EAGAIN;
    return output.empty();
}

Task<Result<>> Stream::send_rest(Loop& loop) {
    while (!flush()) {
        if (errno != EAGAIN) co_return fail(Errc::io, errno, "nbd.tls");
        CO_TRY_VOID(co_await loop.writable(socket()));
    }
    co_return Result<>{};
}

Task<Result<size_t>> Stream::receive(Loop& loop, std::span<std::byte> into, TlsBuffers& buffers) {
    if (!tls_) co_return co_await loop.receive(socket(), into);
    for (;;) {
        co_await Yield(loop);  // what is here already is received without waiting
        iovec vector{into.data(), into.size()};
        msghdr message{};
        message.msg_iov = &vector;
        message.msg_iovlen = 1;
        const ssize_t count = receive_sealed(message, buffers);
        if (count >= 0) co_return static_cast<size_t>(count);
        if (errno == EPROTO) co_return fail(Errc::protocol, 0, "nbd.tls");
        if (errno != EAGAIN) co_return fail(Errc::io, errno, "nbd.tls");
        CO_TRY_VOID(co_await loop.poll(socket(), POLLIN));
    }
}

Task<Result<>> Stream::send_all(Loop& loop, std::span<const std::byte> bytes, TlsBuffers& buffers) {
    while (!bytes.empty() && !tls_) {
        CO_TRY(const size_t count, co_await loop.send(socket(), bytes));
        bytes = bytes.subspan(count);
    }
    while (!bytes.empty()) {
        CO_TRY_VOID(co_await send_rest(loop));
        const iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
        const ssize_t count = send(std::span(&vector, 1), buffers);
        if (count < 0 && errno != EAGAIN) co_return fail(Errc::io, errno, "nbd.tls");
        bytes = bytes.subspan(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    }
    co_return co_await send_rest(loop);
}

Task<Result<>> Stream::begin_tls(Loop& loop, std::shared_ptr<const TlsCredentials> credentials, TlsBuffers& buffers,
                                 std::function<bool()> is_given_up) {
    TARN_ASSERT(!tls_);
    CO_TRY(tls_, TlsSession::create(std::move(credentials)));
    std::vector<std::byte> received(small_receive_size);
    WholeRecords whole;
    for (;;) {
        CO_TRY(const size_t count, co_await loop.receive(socket(), received));
        if (count == 0) co_return fail(Errc::closed, 0, "nbd.tls: the client left within the handshake");
        const auto bytes = std::span<const std::byte>(received).first(count);
        tls_->keep(bytes);
        whole.add(bytes);
        if (!whole.take()) continue;
        // Signatures take too long for the shard's other connections.
        co_await buffers.handshakes.acquire();
        Result<bool> done = fail(Errc::closed, 0, "nbd.tls: given up within the handshake");
        if (!is_given_up()) done = co_await buffers.handshake_threads.run([this] { return tls_->shake_hands(); });
        buffers.handshakes.release();
        const Result<> sent = co_await send_rest(loop);  // also why it failed
        if (!done) co_return fail(done.error());
        CO_TRY_VOID(sent);
        if (!*done) continue;
        // The kernel may load its module first.
        co_await buffers.handshake_threads.run([this] {
            tls_->try_kernel(socket());
            return true;
        });
        co_return Result<>{};
    }
}

Task<> Stream::say_end(Loop& loop, bool waits) {
    if (!tls_) co_return;
    if (tls_->is_sealed_by_kernel()) {
        // The kernel may have a record for which the socket had no room. It goes out before this does.
        if (!co_await loop.writable(socket())) co_return;
        say_end_by_kernel(socket());
    } else if (is_flushed()) {
        tls_->end();
    }
    if (!flush() || !waits) co_return;
    ::shutdown(socket(), SHUT_WR);
    std::vector<std::byte> rest(small_receive_size);
    for (;;) {
        const Result<size_t> count = co_await loop.receive(socket(), rest);
        if (!count || *count == 0) co_return;
    }
}

}  // namespace tarn::nbd
