#include "frontends/nbd/client.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include "utils/file_text.hpp"
#include "utils/unix_socket.hpp"

namespace tarn::nbd {

namespace {

// With its id it names the process for good; 0: it is not known.
uint64_t start_of(pid_t process) {
    static const bool is_known = proc_is_ours();
    return is_known ? started_ticks(fmt::format("/proc/{}", process)) : 0;
}

}  // namespace

Client Client::of(int socket) {
    Client client{.address = {}, .text = "unknown client"};
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return client;
    if (address.ss_family == AF_UNIX) {
        const ucred credentials = peer_of(socket).value_or(ucred{});
        client.process = credentials.pid;
        client.started = start_of(credentials.pid);
        if (!peer_lives(socket)) client.started = 0;  // that may be another one, which has its id now
        client.user = credentials.uid;
        client.text = fmt::format("local client of process {}, user {}", credentials.pid, credentials.uid);
        return client;
    }
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return client;
    client.address = host;
    client.text = fmt::format("client {} port {}", host, port);
    return client;
}

bool Client::lives() const {
    return process == 0 || start_of(process) == started;
}

}  // namespace tarn::nbd
