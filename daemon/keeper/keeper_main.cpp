// tarn-keeper: holds descriptors of tarnd's memory (D2), and of the devices that it serves, so that they outlive tarnd.
// Nothing else (keeping.hpp). tarnd starts it, with a listening socket as descriptor 3; it ends when
// nothing is left to keep. A service manager ends what it has stopped by SIGTERM when the machine is shut down, and
// at no other time (KillMode=process of the unit): then it ends by that, too.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "daemon/keeper/keeper_protocol.hpp"
#include "daemon/keeper/keeping.hpp"

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
    return tarn::keeper::keep_for(tarn::keeper::listening_fd) ? 0 : 1;
}
