#include "coherence/fabric/transport/shm/shm_transport.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "coherence/fabric/transport/shm/segment.hpp"
#include "coherence/fabric/transport/shm/shm_channel.hpp"
#include "tiers/page.hpp"
#include "utils/descriptor_passing.hpp"
#include "utils/file_text.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

namespace {

constexpr std::byte memory_follows{'M'};

// The same for all processes of a machine until it boots anew, in containers, too. Empty: it is not known.
std::string machine_id() {
    return text_of("/proc/sys/kernel/random/boot_id");
}

Result<> check_peer(int socket) {
    TRY(const ucred peer, peer_of(socket));
    if (peer.uid != ::geteuid() && peer.uid != 0)
        return fail(Errc::refused, 0, "fabric.shm: the process there is another user's");
    return {};
}

// One byte, and the memory with it. Errors: io.
Result<> pass_memory(int socket, int memory) {
    if (send_passing(socket, std::span(&memory_follows, 1), memory, MSG_DONTWAIT) != 1)
        return fail(Errc::io, errno, "fabric.shm: sendmsg");
    return {};
}

// The counterpart, once it is there. Errors: closed, refused, io.
Result<UniqueFd> take_memory(int socket) {
    std::byte byte{};
    std::vector<UniqueFd> passed;
    const ssize_t received = receive_passed(socket, std::span(&byte, 1), passed, MSG_DONTWAIT);
    if (received < 0) return fail(Errc::io, errno, "fabric.shm: recvmsg");
    if (received == 0) return fail(Errc::closed);
    if (byte != memory_follows || passed.size() != 1)
        return fail(Errc::refused, 0, "fabric.shm: it does not begin with its memory");
    return std::move(passed.front());
}

class ShmConnection final : public Connection {
  public:
    explicit ShmConnection(UniqueFd accepted) : socket_(std::move(accepted)) {}
    explicit ShmConnection(std::string path) : path_(std::move(path)) {}

    Task<Result<>> connect() override {
        CO_TRY(const sockaddr_un address, unix_address(path_));
        socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!socket_) co_return fail(Errc::io, errno, "fabric.shm: socket");
        const auto connected = co_await Loop::current()->connect(
            socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
        if (!connected) co_return fail(connected.error().code, connected.error().sys_errno, "fabric.shm: connect");
        if (is_cut_) co_return fail(Errc::cancelled, 0, "fabric.shm: connect");
        CO_TRY_VOID(check_peer(socket_.get()));
        CO_TRY(segment_, Segment::create());
        co_return pass_memory(socket_.get(), segment_->fd());
    }
    Task<Result<size_t>> send(std::span<const std::byte> bytes) override {
        co_return co_await Loop::current()->send(socket_.get(), bytes);
    }
    Task<Result<size_t>> receive(std::span<std::byte> bytes) override {
        if (!segment_) {
            CO_TRY_VOID(co_await Loop::current()->poll(socket_.get(), POLLIN));
            if (is_cut_) co_return size_t{0};
            CO_TRY_VOID(take_segment());
        }
        co_return co_await Loop::current()->receive(socket_.get(), bytes);
    }
    void shut_down() override {
        is_cut_ = true;
        if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
    }
    void cancel() override {
        is_cut_ = true;
        if (socket_) Loop::current()->cancel_fd(socket_.get());
    }
    TransportKind kind() const override { return TransportKind::shm; }
    std::string peer_name() const override {
        const Result<ucred> peer = peer_of(socket_.get());
        return peer ? fmt::format("process {} of user {}", peer->pid, peer->uid) : "a local process";
    }
    // One machine is one origin.
    Origin origin() const override { return {}; }
    std::unique_ptr<Channel> become_channel(Loop& loop) override {
        return std::make_unique<ShmChannel>(loop, std::move(socket_), std::move(segment_));
    }

  private:
    Result<> take_segment() {
        TRY_VOID(check_peer(socket_.get()));
        TRY(UniqueFd memory, take_memory(socket_.get()));
        TRY(segment_, Segment::adopt(std::move(memory)));
        return {};
    }

    UniqueFd socket_;
    const std::string path_;
    std::unique_ptr<Segment> segment_;
    bool is_cut_ = false;
};

}  // namespace

Result<std::unique_ptr<Transport>> ShmTransport::listen(const std::string& path) {
    std::error_code error;
    const std::string whole = std::filesystem::absolute(path, error).string();
    if (error) return fail(Errc::io, error.value(), "fabric.shm: the path of the socket");
    if (machine_id().size() + whole.size() > offer_size_max)
        return fail(Errc::invalid, 0, "fabric.shm: the whole path of the socket is too long");
    // As it was given: only that is sure to fit into an address.
    TRY(UniqueFd listener, listen_unix(path, 0600, hosts_max * 2));
    return std::unique_ptr<Transport>(new ShmTransport(whole, std::move(listener)));
}

std::string ShmTransport::offer() const {
    return machine_id() + path_;
}

std::optional<std::string> ShmTransport::address_in(const std::string& offer) const {
    const std::string machine = machine_id();
    if (machine.empty() || !offer.starts_with(machine)) return std::nullopt;
    return offer.substr(machine.size());
}

ShmTransport::~ShmTransport() {
    ::unlink(path_.c_str());
}

Task<Result<std::unique_ptr<Connection>>> ShmTransport::accept() {
    CO_TRY(const size_t fd, co_await Loop::current()->accept(listener_.get()));
    co_return std::make_unique<ShmConnection>(UniqueFd(static_cast<int>(fd)));
}

std::unique_ptr<Connection> ShmTransport::open(const std::string& path) {
    return std::make_unique<ShmConnection>(path);
}

}  // namespace tarn
