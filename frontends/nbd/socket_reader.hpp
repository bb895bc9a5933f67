// SocketReader: reads what a client sends, and takes it off the socket later.
//
// When bytes are taken off a Unix socket the kernel wakes whoever sleeps on its other end, since that has room to send
// again. A client that waits for its answer has no use for this; but on the shard's own CPU it runs at once if the
// shard is courteous, finds nothing, and sleeps again: two context switches for each request. So where the client runs
// there, small requests are only looked at as they come, and many are taken together.
//
// Belongs to one connection, which takes what is left when nothing has come for a moment: a client whose socket has no
// more room might wait for that. And before it closes the socket: its client would take the rest for a reset.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace tarn::nbd {

class SocketReader {
  public:
    // So many times, and bytes, are looked at before they are taken; more at a time are not worth a second copy.
    static constexpr unsigned looks_max = 16;
    static constexpr size_t looked_at_bytes_max = 16 * 1024;
    static constexpr size_t look_bytes_max = 8 * 1024;

    explicit SocketReader(int socket) : socket_(socket) {}

    // As recvmsg(), without waiting: the next bytes that no call has returned before. late: they may stay on the
    // socket. scratch: not empty, its contents are lost.
    ssize_t receive(msghdr& message, bool late, std::span<std::byte> scratch) {
        const bool looks = late && !was_large_ && may_look();
        if (!looks || looks_ >= looks_max || looked_at_bytes_ >= looked_at_bytes_max) take(scratch);
        ssize_t count = ::recvmsg(socket_, &message, MSG_DONTWAIT | (looks ? MSG_PEEK : 0));
        if (count <= 0) return count;
        was_large_ = static_cast<size_t>(count) > look_bytes_max;
        if (looks && was_large_) {
            take(scratch);
            count = ::recvmsg(socket_, &message, MSG_DONTWAIT);  // the same, and what has come meanwhile
        } else if (looks) {
            looked_at_bytes_ += static_cast<size_t>(count);
            ++looks_;
        }
        return count;
    }

    // Takes what was only looked at.
    void take(std::span<std::byte> scratch) {
        while (looked_at_bytes_ > 0) {
            const size_t size = std::min(looked_at_bytes_, scratch.size());
            const ssize_t count = ::recv(socket_, scratch.data(), size, MSG_DONTWAIT);
            if (count <= 0) break;  // of bytes that are there: the client has reset the connection
            looked_at_bytes_ -= static_cast<size_t>(count);
        }
        looked_at_bytes_ = 0;
        looks_ = 0;
    }

    size_t looked_at_bytes() const { return looked_at_bytes_; }

  private:
    // Each look then begins where the last one ended. TCP has looks without that, and no such wake-ups.
    bool may_look() {
        if (looks_on_ == LooksOn::unknown) {
            int domain = 0;
            socklen_t size = sizeof domain;
            constexpr int begin = 0;
            const bool is_unix = ::getsockopt(socket_, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
            const bool may = is_unix && ::setsockopt(socket_, SOL_SOCKET, SO_PEEK_OFF, &begin, sizeof begin) == 0;
            looks_on_ = may ? LooksOn::yes : LooksOn::no;
        }
        return looks_on_ == LooksOn::yes;
    }

    enum class LooksOn : unsigned char { unknown, yes, no };

    const int socket_;
    LooksOn looks_on_ = LooksOn::unknown;
    bool was_large_ = false;  // what came last
    unsigned looks_ = 0;
    size_t looked_at_bytes_ = 0;
};

}  // namespace tarn::nbd
