#include "coherence/fabric/transport/tcp/tcp_transport.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

#include "coherence/fabric/transport/tcp/tcp_channel.hpp"
#include "tiers/page.hpp"
#include "utils/on_thread.hpp"

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
    explicit TcpConnection(UniqueFd fd) : fd_(std::move(fd)) { set_up(fd_.get()); }
    // Not connected yet.
    TcpConnection(std::string address, TcpTransport::Resolve resolve)
        : address_(std::move(address)), resolve_(resolve) {}

    Task<Result<>> connect() override {
        CO_TRY(const SocketAddress to, co_await find());
        if (is_cut_) co_return fail(Errc::cancelled, 0, "fabric.connect");
        fd_ = UniqueFd(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!fd_) co_return fail(Errc::io, errno, "fabric.connect: socket");
        set_up(fd_.get());
        const Result<size_t> connected = co_await Loop::current()->connect(fd_.get(), to.get(), to.size());
        if (!connected) co_return fail(connected.error().code, connected.error().sys_errno, "fabric.connect");
        co_return Result<>{};
    }
    Task<Result<size_t>> send(std::span<const std::byte> bytes) override {
        co_return co_await Loop::current()->send(fd_.get(), bytes);
    }
    Task<Result<size_t>> receive(std::span<std::byte> bytes) override {
        co_return co_await Loop::current()->receive(fd_.get(), bytes);
    }
    void shut_down() override {
        is_cut_ = true;
        if (fd_) ::shutdown(fd_.get(), SHUT_RDWR);
    }
    void cancel() override {
        is_cut_ = true;
        if (fd_) Loop::current()->cancel_fd(fd_.get());
    }
    TransportKind kind() const override { return TransportKind::tcp; }
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
    std::optional<unsigned> incoming_cpu() const override { return incoming_cpu_of(fd_.get()); }
    std::unique_ptr<Channel> become_channel(Loop& loop) override {
        return std::make_unique<TcpChannel>(loop, std::move(fd_));
    }

  private:
    // While a name is looked up, the loop goes on.
    Task<Result<SocketAddress>> find() {
        if (const std::optional<SocketAddress> numeric = numeric_address(address_)) co_return *numeric;
        co_return co_await on_thread([this] { return resolve_(address_); });
    }

    UniqueFd fd_;
    const std::string address_;
    const TcpTransport::Resolve resolve_ = nullptr;
    bool is_cut_ = false;
};

}  // namespace

Result<std::unique_ptr<Transport>> TcpTransport::listen(const std::string& text, Resolve resolve) {
    TRY(const SocketAddress address, tarn::resolve(text));
    UniqueFd listener(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (!listener) return fail(Errc::io, errno, "fabric.listen: socket");
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listener.get(), address.get(), address.size()) != 0 || ::listen(listener.get(), hosts_max * 2) != 0) {
        if (errno == EADDRINUSE)
            return fail(Errc::busy, 0, "fabric.listen: another process listens there; ss -ltnp names it");
        return fail(Errc::io, errno, "fabric.listen");
    }
    return std::unique_ptr<Transport>(new TcpTransport(std::move(listener), resolve));
}

Task<Result<std::unique_ptr<Connection>>> TcpTransport::accept() {
    CO_TRY(const size_t fd, co_await Loop::current()->accept(listener_.get()));
    co_return std::make_unique<TcpConnection>(UniqueFd(static_cast<int>(fd)));
}

std::unique_ptr<Connection> TcpTransport::open(const std::string& address) {
    return std::make_unique<TcpConnection>(address, resolve_);
}

}  // namespace tarn
