#include "coherence/fabric/transport/tcp/tcp_transport.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

#include "coherence/fabric/transport/tcp/address.hpp"
#include "coherence/fabric/transport/tcp/tcp_channel.hpp"
#include "tiers/page.hpp"

namespace tarn {

namespace {

void set_up(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // Keepalive notices a vanished machine even while we only wait for it.
    const int idle_seconds = 5;
    const int interval_seconds = 2;
    const int probes = 5;
    const unsigned unanswered_ms = 15'000;  // for bytes that are not acknowledged
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

class TcpConnection final : public Connection {
  public:
    explicit TcpConnection(UniqueFd fd, const SocketAddress& to = {}) : fd_(std::move(fd)), to_(to) {
        set_up(fd_.get());
    }

    Task<Result<>> connect() override {
        const Result<size_t> connected = co_await Loop::current()->connect(fd_.get(), to_.get(), to_.size());
        if (!connected) co_return fail(connected.error().code, connected.error().sys_errno, "fabric.connect");
        co_return Result<>{};
    }
    Task<Result<size_t>> send(std::span<const std::byte> bytes) override {
        co_return co_await Loop::current()->send(fd_.get(), bytes);
    }
    Task<Result<size_t>> receive(std::span<std::byte> bytes) override {
        co_return co_await Loop::current()->receive(fd_.get(), bytes);
    }
    void shut_down() override { ::shutdown(fd_.get(), SHUT_RDWR); }
    void cancel() override { Loop::current()->cancel_fd(fd_.get()); }
    std::string peer_name() const override { return tarn::peer_name(fd_.get()); }
    // The address without the port, IPv4 mapped into IPv6. Of IPv6 only the prefix: one machine may have a whole
    // network.
    Origin origin() const override {
        constexpr size_t prefix_bytes = 8;
        sockaddr_storage storage{};
        socklen_t size = sizeof storage;
        in6_addr address{};
        if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
        if (storage.ss_family == AF_INET) {
            address.s6_addr[10] = address.s6_addr[11] = 0xff;
            std::memcpy(address.s6_addr + 12, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
        } else if (storage.ss_family == AF_INET6) {
            address = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
            if (!IN6_IS_ADDR_V4MAPPED(&address)) std::memset(address.s6_addr + prefix_bytes, 0, prefix_bytes);
        }
        return std::to_array(address.s6_addr);
    }
    std::unique_ptr<Channel> become_channel(Loop& loop) override {
        return std::make_unique<TcpChannel>(loop, std::move(fd_));
    }

  private:
    UniqueFd fd_;
    const SocketAddress to_;
};

}  // namespace

Result<std::unique_ptr<Transport>> TcpTransport::listen(const std::string& text) {
    TRY(const SocketAddress address, resolve(text));
    UniqueFd listener(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (!listener) return fail(Errc::io, errno, "fabric.listen: socket");
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listener.get(), address.get(), address.size()) != 0 || ::listen(listener.get(), hosts_max * 2) != 0) {
        if (errno == EADDRINUSE)
            return fail(Errc::busy, 0, "fabric.listen: another process listens there; ss -ltnp names it");
        return fail(Errc::io, errno, "fabric.listen");
    }
    return std::unique_ptr<Transport>(new TcpTransport(std::move(listener)));
}

Task<Result<std::unique_ptr<Connection>>> TcpTransport::accept() {
    CO_TRY(const size_t fd, co_await Loop::current()->accept(listener_.get()));
    co_return std::make_unique<TcpConnection>(UniqueFd(static_cast<int>(fd)));
}

Result<std::unique_ptr<Connection>> TcpTransport::open(const std::string& address) {
    TRY(const SocketAddress to, resolve(address));
    UniqueFd socket(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) return fail(Errc::io, errno, "fabric.connect: socket");
    return std::make_unique<TcpConnection>(std::move(socket), to);
}

}  // namespace tarn
