#include "utils/descriptor_passing.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace tarn {

namespace {

// A call that waits a limited time is not begun again by the kernel after a signal, nor after work of an io_uring of
// this thread, which looks like one.
template <class Call>
ssize_t unless_interrupted(Call&& call) {
    for (;;)
        if (const ssize_t result = call(); result >= 0 || errno != EINTR) return result;
}

}  // namespace

ssize_t send_passing(int socket, std::span<const std::byte> bytes, int fd, int flags) {
    iovec piece{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    return unless_interrupted([&] { return ::sendmsg(socket, &message, flags | MSG_NOSIGNAL); });
}

ssize_t receive_passed(int socket, std::span<std::byte> bytes, std::vector<UniqueFd>& passed, int flags) {
    iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    // There is room for two, as its size is rounded up. The kernel closes what finds none.
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = unless_interrupted([&] { return ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC); });
    if (size < 0) return size;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
            int fd = -1;
            std::memcpy(&fd, reinterpret_cast<const std::byte*>(header) + at, sizeof fd);
            passed.emplace_back(fd);
        }
    }
    return size;
}

}  // namespace tarn
