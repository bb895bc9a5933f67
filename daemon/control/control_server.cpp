#include "daemon/control/control_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "utils/clock.hpp"
#include "utils/log.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

struct ControlServer::Connection {
    Connection(Loop& loop, int accepted) : fd(accepted), timer(loop), waiting_since_ns(monotonic_ns()) {}

    UniqueFd fd;
    Timer timer;
    Gate watcher;
    std::string received;
    bool waiting = true;  // for the client's bytes; never cut off while we work for it
    bool closing = false;
    uint64_t waiting_since_ns;
    std::array<std::byte, 4096> buffer{};
};

ControlServer::ControlServer(Loop& loop, std::string path, UniqueFd socket, ControlApi& api)
    : loop_(loop), path_(std::move(path)), socket_(std::move(socket)), api_(api) {}

Result<std::unique_ptr<ControlServer>> ControlServer::create(Loop& loop, const std::string& path, ControlApi& api) {
    TRY(UniqueFd socket, listen_unix(path, 0660));
    return std::unique_ptr<ControlServer>(new ControlServer(loop, path, std::move(socket), api));
}

ControlServer::~ControlServer() {
    if (socket_) ::unlink(path_.c_str());
}

Task<Result<>> ControlServer::serve() {
    Result<> result;
    while (!stopping_) {
        const Result<size_t> accepted = co_await loop_.accept(socket_.get());
        if (!accepted) {
            // Out of descriptors: somebody will close one. Anything else but stop() ends the service.
            const int error = accepted.error().sys_errno;
            if (error == EMFILE || error == ENFILE || error == ECONNABORTED || error == ENOMEM) {
                make_room();
                co_await loop_.sleep(std::chrono::milliseconds(100));
                continue;
            }
            if (!stopping_) result = fail(accepted.error());
            break;
        }
        if (connections_.size() >= connections_max) make_room();
        connections_.emplace_front(loop_, static_cast<int>(*accepted));
        gate_.spawn(serve_connection(connections_.begin()));
    }
    stopping_ = true;
    for (const Connection& connection : connections_)
        if (connection.waiting) ::shutdown(connection.fd.get(), SHUT_RDWR);
    co_await gate_.close();
    co_return result;
}

void ControlServer::stop() {
    stopping_ = true;
    loop_.cancel_fd(socket_.get());
}

void ControlServer::make_room() {
    const Connection* oldest = nullptr;
    for (const Connection& connection : connections_)
        if (connection.waiting && !connection.closing &&
            (!oldest || connection.waiting_since_ns < oldest->waiting_since_ns))
            oldest = &connection;
    if (oldest) ::shutdown(oldest->fd.get(), SHUT_RDWR);
}

Task<> ControlServer::serve_connection(std::list<Connection>::iterator connection) {
    connection->watcher.spawn(watch(*connection));
    while (!stopping_) {
        const bool go_on = co_await serve_request(*connection);
        if (!go_on) break;
    }
    connection->closing = true;
    connection->timer.cancel();
    co_await connection->watcher.close();
    connections_.erase(connection);
}

// Hangs up on a client that keeps us waiting.
Task<> ControlServer::watch(Connection& connection) {
    constexpr uint64_t timeout_ns = std::chrono::nanoseconds(timeout).count();
    while (!connection.closing) {
        const bool slept = co_await connection.timer.sleep(timeout / 2);
        if (!slept || connection.closing) break;
        if (connection.waiting && monotonic_ns() - connection.waiting_since_ns >= timeout_ns)
            ::shutdown(connection.fd.get(), SHUT_RDWR);
    }
}

// False when the connection is to be closed.
Task<bool> ControlServer::serve_request(Connection& connection) {
    HttpRefusal refusal{.status = 0, .reason = {}};
    connection.waiting = true;
    connection.waiting_since_ns = monotonic_ns();
    Result<HttpRequest> request = co_await receive_request(connection, refusal);
    connection.waiting = false;
    if (!request) {
        if (refusal.status != 0) {
            const HttpReply reply = ControlApi::refuse(refusal.status, refusal.reason);
            static_cast<void>(co_await send(connection, format_http_response(reply.status, reply.body, false)));
        }
        co_return false;
    }
    const bool keep_alive = request->keep_alive;
    Result<Caller> caller = Caller::of(connection.fd.get());
    if (!caller) co_return false;  // he has left
    const HttpReply reply = co_await api_.handle(std::move(*request), std::move(*caller));
    const Result<> sent = co_await send(connection, format_http_response(reply.status, reply.body, keep_alive));
    co_return sent&& keep_alive;
}

Task<Result<HttpRequest>> ControlServer::receive_request(Connection& connection, HttpRefusal& refusal) {
    for (;;) {
        auto head = parse_http_head(connection.received);
        if (head && !*head) {
            refusal = head->error();
            co_return fail(Errc::protocol, 0, "control.request");
        }
        if (!head) {
            CO_TRY_VOID(co_await receive_more(connection));
            continue;
        }
        const size_t size_bytes = (*head)->head_size_bytes + (*head)->body_size_bytes;
        if ((*head)->expects_continue && connection.received.size() < size_bytes)
            CO_TRY_VOID(co_await send(connection, "HTTP/1.1 100 Continue\r\n\r\n"));
        while (connection.received.size() < size_bytes) CO_TRY_VOID(co_await receive_more(connection));
        HttpRequest request = std::move((*head)->request);
        request.body = connection.received.substr((*head)->head_size_bytes, (*head)->body_size_bytes);
        connection.received.erase(0, size_bytes);
        co_return request;
    }
}

Task<Result<>> ControlServer::receive_more(Connection& connection) {
    CO_TRY(const size_t size, co_await loop_.receive(connection.fd.get(), connection.buffer));
    if (size == 0) co_return fail(Errc::closed, 0, "control.receive");
    connection.received.append(reinterpret_cast<const char*>(connection.buffer.data()), size);
    co_return Result<>{};
}

Task<Result<>> ControlServer::send(Connection& connection, std::string text) {
    // A client that does not read is one that keeps us waiting.
    connection.waiting = true;
    connection.waiting_since_ns = monotonic_ns();
    Result<> result;
    for (std::span<const std::byte> rest = std::as_bytes(std::span(text)); !rest.empty();) {
        const Result<size_t> sent = co_await loop_.send(connection.fd.get(), rest);
        if (!sent) {
            result = fail(sent.error());
            break;
        }
        rest = rest.subspan(*sent);
    }
    connection.waiting = false;
    co_return result;
}

}  // namespace tarn
