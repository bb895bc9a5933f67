#include "daemon/cli/device_claim.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "utils/unique_fd.hpp"

namespace tarn {

bool is_claimed(const std::string& path, std::chrono::milliseconds within) {
    const pid_t child = ::fork();
    if (child < 0) return false;
    if (child == 0) {
        ::close_range(0, ~0U, 0);  // who reads what tarn prints does not wait for this one
        const int device = ::open(path.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC);
        ::_exit(device < 0 && errno == EBUSY ? 1 : 0);
    }
    const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, static_cast<int>(within.count()));  // without a handle it waits as long as that
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) == 1;
    ::kill(child, SIGKILL);  // it ends as soon as the device answers
    return false;
}

}  // namespace tarn
