// Client: who is at the other end of a socket, as far as sessions tell clients apart.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <tuple>

namespace tarn::nbd {

struct Client {
    std::string address;   // over TCP
    std::string identity;  // that it proved within TLS; then the address does not matter
    pid_t process = 0;     // on a Unix socket; 0: of another PID namespace
    uint64_t started = 0;  // when that process was, in the kernel's ticks; 0: it is not known
    uid_t user = 0;
    std::string text;  // for the log

    static Client of(int socket);
    // Whether it may come back.
    bool lives() const;
    bool operator<(const Client& other) const {
        const bool is_proved = !identity.empty();
        const bool other_is_proved = !other.identity.empty();
        return std::tie(is_proved, name(), process, started, user) <
               std::tie(other_is_proved, other.name(), other.process, other.started, other.user);
    }

    const std::string& name() const { return identity.empty() ? address : identity; }
};

}  // namespace tarn::nbd
