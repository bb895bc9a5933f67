// tarn-keeper: holds descriptors of tarnd's memory (D2), and of the devices that it serves, so that they outlive tarnd.
// Nothing else: it never looks at what it keeps. tarnd starts it, with a listening socket as descriptor 3; it ends when
// nothing is left to keep. A service manager ends what it has stopped by SIGTERM when the machine is shut down, and
// at no other time (KillMode=process of the unit): then it ends by that, too.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

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

// By name.
using Kept = std::map<std::string, tarn::UniqueFd>;

// What has this name, or this name and a dot before more.
void drop(Kept& kept, const std::string& name, bool cut) {
    std::erase_if(kept, [&](const auto& each) {
        if (each.first != name && !each.first.starts_with(name + ".")) return false;
        if (cut) ::shutdown(each.second.get(), SHUT_RDWR);
        return true;
    });
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
    // tarnd waits for the first process only: it may be gone, or be about other things, when the second one ends.
    if (const pid_t keeper = ::fork(); keeper != 0) return keeper < 0 ? 1 : 0;
    ::prctl(PR_SET_NAME, "tarn-keeper");
    // What ends tarnd must not end what keeps its memory.
    for (const int signal : {SIGHUP, SIGINT, SIGPIPE}) std::signal(signal, SIG_IGN);
    if (argc < 3 || std::strcmp(argv[2], tarn::keeper::until_shutdown) != 0) std::signal(SIGTERM, SIG_IGN);
    Kept kept;
    tarn::UniqueFd watcher;  // the tarnd that runs
    for (;;) {
        tarn::UniqueFd client(::accept4(tarn::keeper::listening_fd, nullptr, nullptr, SOCK_CLOEXEC));
        if (!client) {
            if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) return 1;
            // A shortage, of descriptors or memory, is no reason to give up what is kept.
            if (errno != EINTR && errno != ECONNABORTED) ::poll(nullptr, 0, 100);
            continue;
        }
        // A client that says nothing must not keep the next one waiting.
        tarn::keeper::limit_waits(client.get(), std::chrono::seconds(1));
        if (!may_ask(client.get())) continue;
        tarn::Result<Said> said = tarn::keeper::hear(client.get());
        if (!said) continue;
        switch (said->word) {
            case Word::keep:
                if (!said->fd) break;
                kept.insert_or_assign(said->name, std::move(said->fd));
                (void)tarn::keeper::say(client.get(), Word::done);
                break;
            case Word::take:
                for (const auto& [name, fd] : kept) (void)tarn::keeper::say(client.get(), Word::done, name, fd.get());
                (void)tarn::keeper::say(client.get(), Word::none);
                break;
            case Word::drop:
            case Word::cut:
                if (said->word == Word::cut && watcher) (void)tarn::keeper::say(watcher.get(), Word::cut, said->name);
                drop(kept, said->name, said->word == Word::cut);
                if (kept.empty()) remove_socket();
                (void)tarn::keeper::say(client.get(), Word::done);
                if (kept.empty()) return 0;
                break;
            case Word::has:
                (void)tarn::keeper::say(client.get(), kept.contains(said->name) ? Word::done : Word::none);
                break;
            case Word::watch:
                (void)tarn::keeper::say(client.get(), Word::done);
                watcher = std::move(client);
                break;
            case Word::done:
            case Word::none: break;
        }
    }
}
