#include "daemon/keeper/keeping.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>

#include "daemon/keeper/keeper_protocol.hpp"
#include "utils/unique_fd.hpp"
#include "utils/unix_socket.hpp"

namespace tarn::keeper {

namespace {

// Only the user whose memory it is.
bool may_ask(int socket) {
    const Result<ucred> peer = peer_of(socket);
    return peer && peer->uid == ::geteuid();
}

// By name.
using Kept = std::map<std::string, UniqueFd>;

// What has this name, or this name and a dot before more.
void drop(Kept& kept, const std::string& name, bool cut) {
    std::erase_if(kept, [&](const auto& each) {
        if (each.first != name && !each.first.starts_with(name + ".")) return false;
        if (cut) ::shutdown(each.second.get(), SHUT_RDWR);
        return true;
    });
}

// Who asked has given up, and may have been told that nothing was done: a name may mean another device by now.
bool has_left(int client) {
    pollfd asks{.fd = client, .events = POLLRDHUP, .revents = 0};
    return ::poll(&asks, 1, 0) > 0;
}

void remove_socket(int listening) {
    sockaddr_un address{};
    socklen_t size = sizeof address;
    if (::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size) == 0) ::unlink(address.sun_path);
}

}  // namespace

bool keep_for(int listening) {
    Kept kept;
    UniqueFd watcher;  // the tarnd that runs
    for (;;) {
        UniqueFd client(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
        if (!client) {
            if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) return false;
            // A shortage, of descriptors or memory, is no reason to give up what is kept.
            if (errno != EINTR && errno != ECONNABORTED) ::poll(nullptr, 0, 100);
            continue;
        }
        // A client that says nothing must not keep the next one waiting.
        limit_waits(client.get(), std::chrono::seconds(1));
        if (!may_ask(client.get())) continue;
        Result<Said> said = hear(client.get());
        if (!said) continue;
        switch (said->word) {
            case Word::keep:
                if (!said->fd) break;
                kept.insert_or_assign(said->name, std::move(said->fd));
                (void)say(client.get(), Word::done);
                break;
            case Word::take:
                // Who did not hear of each must not believe that it has all: it finds the connection closed.
                if (std::ranges::all_of(kept, [&](const auto& each) {
                        return say(client.get(), Word::done, each.first, each.second.get()).has_value();
                    }))
                    (void)say(client.get(), Word::none);
                break;
            case Word::drop:
            case Word::cut:
                if (said->word == Word::cut && has_left(client.get())) break;
                if (said->word == Word::cut && watcher) (void)say(watcher.get(), Word::cut, said->name);
                drop(kept, said->name, said->word == Word::cut);
                if (kept.empty()) remove_socket(listening);
                (void)say(client.get(), Word::done);
                if (kept.empty()) return true;
                break;
            case Word::has: (void)say(client.get(), kept.contains(said->name) ? Word::done : Word::none); break;
            case Word::watch:
                (void)say(client.get(), Word::done);
                watcher = std::move(client);
                break;
            case Word::done:
            case Word::none: break;
        }
    }
}

}  // namespace tarn::keeper
