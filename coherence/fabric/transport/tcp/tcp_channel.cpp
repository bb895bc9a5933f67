#include "coherence/fabric/transport/tcp/tcp_channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tarn {

size_t TcpChannel::try_send(std::span<const std::byte> bytes) {
    const ssize_t taken = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return static_cast<size_t>(std::max<ssize_t>(taken, 0));
}

Task<Result<size_t>> TcpChannel::send(std::span<const std::byte> bytes) {
    co_return co_await loop_.send(fd_.get(), bytes);
}

Task<Result<Channel::Received>> TcpChannel::receive(std::span<std::byte> page, size_t taken) {
    filled_ -= taken;
    std::memmove(buffer_.data(), buffer_.data() + taken, filled_);
    if (filled_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);  // a record longer than the buffer
    const std::span free = std::span(buffer_).subspan(filled_);
    std::array<iovec, 2> pieces{iovec{.iov_base = page.data(), .iov_len = page.size()},
                                iovec{.iov_base = free.data(), .iov_len = free.size()}};
    msghdr message{};
    message.msg_iov = page.empty() ? pieces.data() + 1 : pieces.data();
    message.msg_iovlen = page.empty() ? 1 : 2;
    for (;;) {
        if (!readable_) {
            CO_TRY(const unsigned events, co_await readiness_.wait());
            hung_up_ = hung_up_ || (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        }
        const ssize_t received = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
        // A short read took everything there was. After a hang-up, reading goes on until recvmsg reports the end.
        readable_ =
            hung_up_ || received == static_cast<ssize_t>(page.size() + free.size()) || (received < 0 && errno == EINTR);
        if (received == 0) co_return fail(Errc::closed);
        if (received > 0) {
            const size_t page_bytes = std::min(static_cast<size_t>(received), page.size());
            filled_ += static_cast<size_t>(received) - page_bytes;
            co_return Received{.page_bytes = page_bytes, .bytes = {buffer_.data(), filled_}};
        }
        if (errno != EAGAIN && errno != EINTR) co_return fail(Errc::io, errno, "fabric.receive");
    }
}

}  // namespace tarn
