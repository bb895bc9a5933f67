// tarn-keeper: holds the descriptor of tarnd's memory, so that it outlives tarnd (D2). Nothing else: it never looks at
// what it keeps. tarnd starts it where no service manager keeps descriptors, with a listening socket as descriptor 3;
// it ends when tarnd says so. A service manager ends what it has stopped by SIGTERM when the machine is shut down, and
// at no other time (KillMode=process of the unit): then it ends by that, too.
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "daemon/keeper/keeper_protocol.hpp"
#include "utils/unix_socket.hpp"

namespace {

using tarn::keeper::Said;
using tarn::keeper::Word;

// Only the user whose memory it is.
bool may_ask(int socket) {
    const tarn::Result<ucred> peer = tarn::peer_of(socket);
    return peer && peer->uid == ::geteuid();
}

void remove_socket() {
    sockaddr_un address{};
    socklen_t size = sizeof address;
    if (::getsockname(tarn::keeper::listening_fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
        ::unlink(address.sun_path);
}

}  // namespace

int main(int argc, char** argv) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(tarn::keeper::listening_fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) {
        std::fputs("tarn-keeper: started by tarnd, to keep its memory while it restarts; of no use by itself\n",
                   stderr);
        return 2;
    }
    ::prctl(PR_SET_NAME, "tarn-keeper");
    // What ends tarnd must not end what keeps its memory.
    for (const int signal : {SIGHUP, SIGINT, SIGPIPE}) std::signal(signal, SIG_IGN);
    if (argc < 3 || std::strcmp(argv[2], tarn::keeper::until_shutdown) != 0) std::signal(SIGTERM, SIG_IGN);
    tarn::UniqueFd kept;
    for (;;) {
        const tarn::UniqueFd client(::accept4(tarn::keeper::listening_fd, nullptr, nullptr, SOCK_CLOEXEC));
        if (!client) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            return 1;
        }
        // A client that says nothing must not keep the next one waiting.
        const timeval timeout{.tv_sec = 1, .tv_usec = 0};
        ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
        if (!may_ask(client.get())) continue;
        tarn::Result<Said> said = tarn::keeper::hear(client.get());
        if (!said) continue;
        switch (said->word) {
            case Word::keep:
                if (!said->fd) break;
                kept = std::move(said->fd);
                (void)tarn::keeper::say(client.get(), Word::done);
                break;
            case Word::take:
                (void)tarn::keeper::say(client.get(), kept ? Word::done : Word::none, kept ? kept.get() : -1);
                break;
            case Word::drop:
                remove_socket();
                (void)tarn::keeper::say(client.get(), Word::done);
                return 0;
            case Word::done:
            case Word::none: break;
        }
    }
}
