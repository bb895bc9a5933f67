#include "utils/unix_socket.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "utils/log.hpp"

namespace tarn {

namespace {

// Errors: io, also when nothing is there.
Result<bool> answers(const sockaddr_un& address) {
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe) return fail(Errc::io, errno, "listen: socket");
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN)
        return true;
    if (errno != ECONNREFUSED) return fail(Errc::io, errno, "listen: connect");
    return false;
}

// Removes the socket of a daemon that is gone.
Result<> remove_stale(const std::string& path, const sockaddr_un& address) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) return {};
    if (!S_ISSOCK(status.st_mode)) return fail(Errc::exists, 0, "listen: something else than a socket is there");
    TRY(const bool alive, answers(address));
    if (alive) return fail(Errc::busy, 0, "listen: another daemon listens there");
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail(Errc::io, errno, "listen: unlink");
    return {};
}

}  // namespace

Result<sockaddr_un> unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path) return fail(Errc::invalid, 0, "listen: path too long");
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

bool is_listened_to(const std::string& path) {
    const Result<sockaddr_un> address = unix_address(path);
    return address && answers(*address).value_or(false);
}

std::string unsafe_place(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    // Symbolic links count as what they lead to.
    for (fs::path place = fs::weakly_canonical(fs::path(path).parent_path(), error);; place = place.parent_path()) {
        struct stat status{};
        if (error) return log::printable(path) + ": " + error.message();
        if (::stat(place.c_str(), &status) != 0) {
            if (errno != ENOENT) return log::printable(place.string()) + ": " + std::strerror(errno);
        } else if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
            return fmt::format("{} belongs to another user ({})", log::printable(place.string()), status.st_uid);
        } else if ((status.st_mode & S_ISVTX) == 0 &&
                   ((status.st_mode & S_IWOTH) != 0 ||
                    ((status.st_mode & S_IWGRP) != 0 && status.st_gid != ::getegid() && status.st_gid != 0))) {
            return fmt::format("others may write {} (mode {:04o})", log::printable(place.string()),
                               status.st_mode & 07777);
        }
        if (place == place.parent_path()) return "";
    }
}

Result<ucred> peer_of(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return fail(Errc::io, errno, "socket: SO_PEERCRED");
    return peer;
}

bool peer_lives(int socket) {
    constexpr int so_peerpidfd = 77;  // Debian 12's headers do not have it
    int pidfd = -1;
    socklen_t size = sizeof pidfd;
    if (::getsockopt(socket, SOL_SOCKET, so_peerpidfd, &pidfd, &size) != 0) return errno != ESRCH && errno != EINVAL;
    const UniqueFd owned(pidfd);
    return ::syscall(SYS_pidfd_send_signal, pidfd, 0, nullptr, 0) == 0 || errno != ESRCH;
}

Result<UniqueFd> listen_unix(const std::string& path, mode_t mode, int backlog) {
    TRY(const sockaddr_un address, unix_address(path));
    const std::string directory = std::filesystem::path(path).parent_path().string();
    if (!directory.empty() && ::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST)
        return fail(Errc::io, errno, "listen: its directory cannot be made");
    TRY_VOID(remove_stale(path, address));
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return fail(Errc::io, errno, "listen: socket");
    // Before bind: the path never has more rights than it shall have. After: the umask may have taken some.
    if (::fchmod(fd.get(), mode) != 0) return fail(Errc::io, errno, "listen: chmod");
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        if (errno == EADDRINUSE) return fail(Errc::busy, 0, "listen: another daemon listens there");
        return fail(Errc::io, errno, "listen: bind");
    }
    if (::chmod(path.c_str(), mode) != 0) return fail(Errc::io, errno, "listen: chmod");
    if (::listen(fd.get(), backlog) != 0) return fail(Errc::io, errno, "listen");
    return fd;
}

}  // namespace tarn
