// lean_server: the leanest NBD server that can be written, as a limit to measure against: memory, one thread for each
// connection, two system calls for all requests that lie in the socket. Nothing is shared, checked twice or durable.
//
//   lean_server SOCKET SIZE_MIB
//
// Prints "ready" when clients may connect; every export name stands for its memory.
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "frontends/nbd/handshake.hpp"
#include "frontends/nbd/reply.hpp"
#include "utils/unix_socket.hpp"

namespace tarn::nbd {
namespace {

constexpr size_t receive_size = 1 << 20;

bool send_all(int socket, std::vector<iovec>& vectors) {
    for (size_t first = 0; first < vectors.size();) {
        msghdr message{};
        message.msg_iov = vectors.data() + first;
        message.msg_iovlen = std::min(vectors.size() - first, ReplyBatch::vectors_max);
        ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        for (; sent > 0; ++first) {
            iovec& vector = vectors[first];
            const size_t taken = std::min(static_cast<size_t>(sent), vector.iov_len);
            sent -= static_cast<ssize_t>(taken);
            if (taken == vector.iov_len) continue;
            vector.iov_base = static_cast<std::byte*>(vector.iov_base) + taken;
            vector.iov_len -= taken;
            break;
        }
    }
    vectors.clear();
    return true;
}

bool negotiate(int socket, uint64_t size_bytes, Handshake& handshake) {
    std::vector<std::byte> received(4096);
    while (handshake.state() != Handshake::State::transmission) {
        if (handshake.state() == Handshake::State::asking) {
            handshake.answer_found({.name = handshake.name(), .description = {}, .size_bytes = size_bytes});
            continue;
        }
        std::vector<iovec> output{{handshake.output().data(), handshake.output().size()}};
        if (!handshake.output().empty() && !send_all(socket, output)) return false;
        handshake.output().clear();
        if (handshake.state() == Handshake::State::closed) return false;
        if (handshake.state() == Handshake::State::transmission) break;
        const ssize_t count = ::recv(socket, received.data(), received.size(), 0);
        if (count <= 0) return false;
        handshake.receive(std::span(received).first(static_cast<size_t>(count)));
    }
    std::vector<iovec> output{{handshake.output().data(), handshake.output().size()}};
    return handshake.output().empty() || send_all(socket, output);
}

void serve(UniqueFd socket, std::vector<std::byte>& memory) {
    Handshake handshake;
    if (!negotiate(socket.get(), memory.size(), handshake)) return;
    const bool structured = handshake.exported().structured;
    const bool extended = handshake.exported().extended;
    const size_t header_size = extended ? extended_request_size : request_size;
    std::vector<std::byte> received(receive_size);
    std::vector<ReplyHeader> headers;
    headers.reserve(receive_size / request_size);  // the vectors point into it
    std::vector<iovec> vectors;
    for (size_t filled = 0;;) {
        const ssize_t count = ::recv(socket.get(), received.data() + filled, received.size() - filled, 0);
        if (count <= 0) return;
        filled += static_cast<size_t>(count);
        size_t at = 0;
        while (filled - at >= header_size) {
            const std::span<const std::byte> rest = std::span(received).subspan(at, filled - at);
            const Result<Request> request = extended ? decode_extended_request(rest.first<extended_request_size>())
                                                     : decode_request(rest.first<request_size>());
            if (!request || request->command == Command::disconnect ||
                request->offset_bytes + request->size_bytes > memory.size())
                return;
            std::byte* const bytes = memory.data() + request->offset_bytes;
            const bool reads = request->command == Command::read;
            const size_t payload_size = request->command == Command::write ? request->size_bytes : 0;
            if (rest.size() < header_size + payload_size) break;
            std::memcpy(bytes, rest.data() + header_size, payload_size);
            headers.push_back(reads ? encode_read(*request, structured)
                                    : encode_status(*request, Errno::none, structured));
            vectors.push_back({headers.back().bytes.data(), headers.back().size_bytes});
            if (reads) vectors.push_back({bytes, request->size_bytes});
            at += header_size + payload_size;
        }
        if (!vectors.empty() && !send_all(socket.get(), vectors)) return;
        headers.clear();
        std::memmove(received.data(), received.data() + at, filled - at);
        filled -= at;
    }
}

int run(const char* path, size_t size_mib) {
    const Result<UniqueFd> listener = listen_unix(path, 0600);
    if (!listener) {
        fmt::print(stderr, "lean_server: {}\n", listener.error().where);
        return 1;
    }
    std::vector<std::byte> memory(size_mib << 20, std::byte{1});
    fmt::print("ready\n");
    std::fflush(stdout);
    for (;;) {
        UniqueFd socket(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!socket) return 1;
        std::thread([socket = std::move(socket), &memory]() mutable { serve(std::move(socket), memory); }).detach();
    }
}

}  // namespace
}  // namespace tarn::nbd

int main(int count, char** arguments) {
    if (count != 3) {
        fmt::print(stderr, "lean_server SOCKET SIZE_MIB\n");
        return 2;
    }
    return tarn::nbd::run(arguments[1], std::strtoull(arguments[2], nullptr, 10));
}
