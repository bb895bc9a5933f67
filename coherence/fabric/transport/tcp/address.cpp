#include "coherence/fabric/transport/tcp/address.hpp"

#include <netdb.h>

#include <cstring>

namespace tarn {

Result<SocketAddress> look_up(const std::string& address, int flags) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon + 1 == address.size())
        return fail(Errc::invalid, 0, "address: write HOST:PORT");
    std::string host = address.substr(0, colon);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICSERV | AI_PASSIVE | flags;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.empty() ? nullptr : host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0)
        return fail(Errc::not_found, 0, "address: no such host or port");
    SocketAddress result;
    std::memcpy(&result.storage_, found->ai_addr, found->ai_addrlen);
    result.size_ = found->ai_addrlen;
    ::freeaddrinfo(found);
    return result;
}

Result<SocketAddress> resolve(const std::string& address) {
    return look_up(address, 0);
}

std::optional<SocketAddress> numeric_address(const std::string& address) {
    const Result<SocketAddress> found = look_up(address, AI_NUMERICHOST);
    return found ? std::optional(*found) : std::nullopt;
}

std::string peer_name(int fd) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0 ||
        ::getnameinfo(reinterpret_cast<sockaddr*>(&storage), size, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return "somebody who has left";
    return std::string(host) + ":" + port;
}

}  // namespace tarn
