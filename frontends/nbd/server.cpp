#include "frontends/nbd/server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <unordered_set>

#include "utils/log.hpp"
#include "utils/run_on.hpp"
#include "utils/unix_socket.hpp"

namespace tarn::nbd {

namespace {

constexpr int backlog = 1024;
// Room for the replies of a deep queue, so that a reader that keeps up never costs a copy.
constexpr int send_buffer_size = 2 * 1024 * 1024;
constexpr std::chrono::milliseconds accept_pause{100};

void set_option(int socket, int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);  // each is a matter of speed only
}

void tune(int socket) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    // Unprivileged, the first is refused and the second cut to the system's limit.
    set_option(socket, SOL_SOCKET, SO_SNDBUF, send_buffer_size);
    set_option(socket, SOL_SOCKET, SO_SNDBUFFORCE, send_buffer_size);
}

size_t connections_allowed(size_t wanted) {
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return wanted;
    const size_t left = std::min<size_t>(Server::descriptors_left_min, descriptors.rlim_cur / 2);
    return std::min<size_t>(wanted, descriptors.rlim_cur - left);
}

// Errors: invalid (nobody could connect there).
Result<Server::Place> place_of(const sockaddr_storage& address, socklen_t size) {
    Server::Place place;
    if (address.ss_family == AF_UNIX) {
        const auto* const path = reinterpret_cast<const sockaddr_un&>(address).sun_path;
        place.path.assign(path, ::strnlen(path, size - offsetof(sockaddr_un, sun_path)));
        if (place.path.empty()) return fail(Errc::invalid, 0, "nbd.listen: a Unix socket without a path");
        return place;
    }
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return fail(Errc::invalid, 0, "nbd.listen: a socket without an address");
    place.host = host;
    place.port = static_cast<uint16_t>(std::strtoul(port, nullptr, 10));
    return place;
}

}  // namespace

struct Server::Shard : Workspace {
    using Workspace::Workspace;

    std::unordered_set<Connection*> connections;
    std::unordered_set<DeviceConnection*> devices;
    std::atomic<size_t> load{0};  // connections that are here or on their way
    bool stopping = false;
    Gate gate;
};

Server::Server(std::vector<Loop*> shards, Volumes& volumes, size_t held_bytes_max, Settings settings,
               std::span<std::byte> landing, std::span<std::byte> clients)
    : loop_(*shards.front()),
      volumes_(volumes),
      settings_(std::move(settings)),
      sessions_(SessionBook(clients)),
      share_(held_bytes_max),
      connections_max_(connections_allowed(settings_.connections_max)),
      newcomers_(std::clamp<size_t>(connections_max_ / 2, 1, settings_.handshakes_max)) {
    constexpr size_t size = LandingBuffers::size_bytes;
    for (Loop* const shard : shards) {
        const std::span<std::byte> own = landing.first(landing.size() < size ? 0 : size);
        landing = landing.subspan(own.size());
        shards_.push_back(std::make_unique<Shard>(*shard, share_, settings_, newcomers_, own));
    }
}

Server::~Server() {
    for (const Listener& listener : listeners_)
        if (!listener.path.empty()) ::unlink(listener.path.c_str());
}

Result<> Server::listen_unix(const std::string& path, mode_t mode) {
    TRY(UniqueFd socket, tarn::listen_unix(path, mode, backlog));
    listeners_.push_back({.socket = std::move(socket), .path = path});
    return {};
}

Result<uint16_t> Server::listen_tcp(const std::string& host, uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const std::string service = std::to_string(port);
    if (::getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &list) != 0)
        return fail(Errc::invalid, 0, "nbd.listen: no such host or address");
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, ::freeaddrinfo);
    int bind_errno = 0;
    for (const addrinfo* entry = list; entry; entry = entry->ai_next) {
        UniqueFd socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (socket) set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
        if (!socket || ::bind(socket.get(), entry->ai_addr, entry->ai_addrlen) != 0 ||
            ::listen(socket.get(), backlog) != 0) {
            bind_errno = errno;
            continue;
        }
        sockaddr_storage bound{};
        socklen_t size = sizeof bound;
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
        listeners_.push_back({.socket = std::move(socket), .path = {}, .is_tcp = true});
        return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                 : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    }
    if (bind_errno == EADDRINUSE)
        return fail(Errc::busy, 0, "nbd.listen: another process listens there; ss -ltnp names it");
    return fail(Errc::io, bind_errno, "nbd.listen");
}

Result<Server::Place> Server::listen_on(UniqueFd socket) {
    int type = 0;
    int listens = 0;
    socklen_t size = sizeof type;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
    sockaddr_storage bound{};
    size = sizeof bound;
    if (type != SOCK_STREAM || listens == 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
        return fail(Errc::invalid, 0, "nbd.listen: it does not listen for streams");
    TRY(Place place, place_of(bound, size));
    // An accept that waits is the loop's.
    if (const int flags = ::fcntl(socket.get(), F_GETFL); flags >= 0)
        ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);
    listeners_.push_back({.socket = std::move(socket), .path = {}, .is_tcp = place.path.empty()});
    return place;
}

Task<> Server::serve() {
    for (Listener& listener : listeners_) gate_.spawn(accept_from(listener));
    co_await gate_.close();
}

Task<> Server::accept_from(Listener& listener) {
    while (!stopping_) {
        const Result<size_t> accepted = co_await loop_.accept(listener.socket.get());
        if (!accepted) {
            if (stopping_ || accepted.error().code == Errc::cancelled) co_return;
            // Out of descriptors or memory, or a client that left at once.
            if (const std::optional<std::string> left_out = refusals_.admit())
                log::warning("nbd: cannot accept a connection: {}{}", log::describe(accepted.error()), *left_out);
            co_await loop_.sleep(accept_pause);
            continue;
        }
        UniqueFd socket(static_cast<int>(*accepted));
        if (stopping_) co_return;
        if (connection_count() >= connections_max_) {
            if (const std::optional<std::string> left_out = refusals_.admit())
                log::warning("nbd: {} refused: {} connections are the limit (nbd.connections_max, open files){}",
                             Client::of(socket.get()).text, connections_max_, *left_out);
            continue;
        }
        if (!may_enter(listener, socket.get())) continue;
        tune(socket.get());
        Shard& shard = next_for(std::nullopt);
        std::shared_ptr<const Admission> admission = listener.is_tcp ? admission_ : nullptr;
        loop_.spawn(run_on(shard.loop, take_up(shard, std::move(socket), accepted_count_++, std::move(admission))));
    }
}

bool Server::may_enter(const Listener& listener, int socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (!listener.is_tcp || admission_->networks.empty()) return true;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 && admission_->admits(address))
        return true;
    if (const std::optional<std::string> left_out = refusals_.admit())
        log::warning("nbd: {} refused: its address is in none of nbd.networks{}", Client::of(socket).text, *left_out);
    return false;
}

Result<> Server::adopt(DeviceLink link) {
    if (stopping_) return fail(Errc::cancelled, 0, "nbd.server: stopping");
    tune(link.socket.get());
    Shard& shard = next_for(link.cpu);
    loop_.spawn(run_on(shard.loop, take_device(shard, std::move(link))));
    return {};
}

// For one connection more.
Server::Shard& Server::next_for(std::optional<unsigned> cpu) {
    Shard* const joined = cpu ? least_loaded(cpu) : nullptr;
    Shard& shard = joined ? *joined : *least_loaded();
    shard.load.fetch_add(1, std::memory_order_relaxed);
    connection_count_.fetch_add(1, std::memory_order_relaxed);
    return shard;
}

Server::Shard* Server::least_loaded(std::optional<unsigned> cpu) const {
    Shard* least = nullptr;
    for (const std::unique_ptr<Shard>& shard : shards_) {
        if (cpu && !shard->loop.cpus().contains(*cpu)) continue;
        if (!least || shard->load.load(std::memory_order_relaxed) < least->load.load(std::memory_order_relaxed))
            least = shard.get();
    }
    return least;
}

// An accepted socket, on its shard, which does not stop yet: stop_shard() comes behind it. admission: null for a Unix
// socket.
Task<> Server::take_up(Shard& shard, UniqueFd socket, unsigned place, std::shared_ptr<const Admission> admission) {
    Connection::ShardOf shard_of;
    if (!shard.loop.cpus().empty()) shard_of = [this](unsigned cpu) { return next_shard(cpu); };
    Client client = Client::of(socket.get());
    shard.gate.spawn(run_connection(
        shard, std::make_unique<Connection>(shard, volumes_, sessions_, std::move(socket), std::move(client),
                                            std::move(shard_of), place, std::move(admission))));
    co_return;
}

// The same, for a device.
Task<> Server::take_device(Shard& shard, DeviceLink link) {
    shard.gate.spawn(run_device(shard, std::move(link)));
    co_return;
}

Task<> Server::run_device(Shard& shard, DeviceLink link) {
    Gate telling;
    const auto resized = [&] {
        if (!shard.stopping) telling.spawn(run_on(shard.loop, loop_, tell_resized(link)));
    };
    auto connection =
        std::make_unique<DeviceConnection>(shard, std::move(link.volume), link.exported, std::move(link.socket),
                                           link.memory, link.first_receipt, link.client, resized);
    if (link.export_ended) connection->end_export();
    shard.devices.insert(connection.get());
    const DeviceConnection::End how = co_await connection->serve();
    shard.devices.erase(connection.get());
    co_await telling.close();
    connection.reset();  // who is told may free the memory
    shard.load.fetch_sub(1, std::memory_order_relaxed);
    connection_count_.fetch_sub(1, std::memory_order_relaxed);
    if (!shard.stopping) co_await run_on(shard.loop, loop_, tell_ended(link, how));
}

Task<> Server::tell_ended(const DeviceLink& link, DeviceConnection::End how) {
    link.ended(how);
    co_return;
}

Task<> Server::tell_resized(const DeviceLink& link) {
    link.resized();
    co_return;
}

Task<> Server::run_connection(Shard& shard, std::unique_ptr<Connection> connection) {
    shard.connections.insert(connection.get());
    auto* const next = static_cast<Shard*>(co_await connection->serve());
    shard.connections.erase(connection.get());
    shard.load.fetch_sub(1, std::memory_order_relaxed);
    if (next)
        shard.loop.spawn(run_on(next->loop, arrive(*next, std::move(connection))));
    else
        connection_count_.fetch_sub(1, std::memory_order_relaxed);
}

// Any shard: where a connection goes on that is about to leave its own.
Workspace* Server::next_shard(unsigned cpu) {
    Shard* const next = least_loaded(cpu);
    if (!next) return nullptr;
    moving_.fetch_add(1);
    if (held_.load() != 0) {
        moving_.fetch_sub(1);
        return nullptr;
    }
    next->load.fetch_add(1, std::memory_order_relaxed);
    return next;
}

// On the shard.
Task<> Server::arrive(Shard& shard, std::unique_ptr<Connection> connection) {
    shard.gate.spawn(run_connection(shard, std::move(connection)));
    moving_.fetch_sub(1);
    co_return;
}

// Until let_move() each connection is on the shard that knows it. One under way arrives within microseconds.
Task<> Server::hold_moves() {
    held_.fetch_add(1);
    while (moving_.load() != 0) co_await Yield(loop_);
}

Task<> Server::stop() {
    stopping_ = true;
    sessions_.keep_all();
    co_await hold_moves();  // for good
    for (const Listener& listener : listeners_) loop_.cancel_fd(listener.socket.get());
    // Together: each may have clients that do not take their replies.
    Gate stopping;
    for (const std::unique_ptr<Shard>& shard : shards_) stopping.spawn(run_on(loop_, shard->loop, stop_shard(*shard)));
    co_await stopping.close();
}

std::vector<size_t> Server::connections_by_shard() const {
    std::vector<size_t> counts;
    for (const std::unique_ptr<Shard>& shard : shards_) counts.push_back(shard->load.load(std::memory_order_relaxed));
    return counts;
}

Task<std::vector<std::string>> Server::clients_of(VolumeId volume) {
    std::set<std::string> clients;  // each once, however many connections it has
    co_await hold_moves();
    for (const std::unique_ptr<Shard>& shard : shards_)
        for (std::string& text : co_await run_on(shard->loop, clients_on(*shard, volume)))
            clients.insert(std::move(text));
    let_move();
    co_return std::vector<std::string>(clients.begin(), clients.end());
}

Task<std::vector<std::string>> Server::clients_on(Shard& shard, VolumeId volume) {
    std::vector<std::string> texts;
    for (const Connection* const connection : shard.connections)
        if (connection->uses(volume)) texts.push_back(connection->client().text);
    for (const DeviceConnection* const device : shard.devices)
        if (device->volume().id() == volume) texts.push_back(device->client().text);
    co_return texts;
}

Task<> Server::end_clients_of(VolumeId volume) {
    co_await hold_moves();
    for (const std::unique_ptr<Shard>& shard : shards_) co_await run_on(shard->loop, end_clients_on(*shard, volume));
    let_move();
}

Task<> Server::end_clients_on(Shard& shard, VolumeId volume) {
    for (Connection* const connection : shard.connections)
        if (connection->uses(volume)) connection->end_export();
    for (DeviceConnection* const device : shard.devices)
        if (device->volume().id() == volume) device->end_export();
    co_return;
}

// On the shard. Sockets handed over before are ahead of us in its inbox.
Task<> Server::stop_shard(Shard& shard) {
    shard.stopping = true;
    const std::vector<Connection*> connections(shard.connections.begin(), shard.connections.end());
    for (Connection* const connection : connections)
        if (shard.connections.contains(connection)) connection->stop();
    const std::vector<DeviceConnection*> devices(shard.devices.begin(), shard.devices.end());
    for (DeviceConnection* const device : devices)
        if (shard.devices.contains(device)) device->stop();
    co_await shard.gate.close();
}

}  // namespace tarn::nbd
