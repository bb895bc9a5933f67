#include "daemon/control/caller.hpp"

#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "utils/unix_socket.hpp"

namespace tarn {

Result<Caller> Caller::of(int socket) {
    TRY(const ucred peer, peer_of(socket));
    Caller caller{.user = peer.uid, .group = peer.gid, .groups = {}};
    for (socklen_t bytes = 32 * sizeof(gid_t);;) {
        caller.groups.resize(bytes / sizeof(gid_t));
        if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, caller.groups.data(), &bytes) == 0) {
            caller.groups.resize(bytes / sizeof(gid_t));
            return caller;
        }
        if (errno != ERANGE) return fail(Errc::io, errno, "caller: SO_PEERGROUPS");  // else bytes is how many it takes
    }
}

Caller Caller::self() {
    Caller caller{.user = ::geteuid(), .group = ::getegid(), .groups = {}};
    const int count = ::getgroups(0, nullptr);
    if (count > 0) caller.groups.resize(static_cast<size_t>(count));
    const int got = ::getgroups(static_cast<int>(caller.groups.size()), caller.groups.data());
    caller.groups.resize(static_cast<size_t>(got > 0 ? got : 0));
    return caller;
}

}  // namespace tarn
