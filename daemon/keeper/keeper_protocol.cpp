#include "daemon/keeper/keeper_protocol.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "utils/assert.hpp"

namespace tarn::keeper {

namespace {

// All are of one size: neither end can take two of them for one.
struct Message {
    char word;
    std::array<char, name_size_max + 1> name;  // ends with a zero
};

// A call that waits a limited time is not begun again by the kernel after a signal, nor after work of an io_uring of
// this thread, which looks like one.
template <class Call>
ssize_t unless_interrupted(Call&& call) {
    for (;;)
        if (const ssize_t result = call(); result >= 0 || errno != EINTR) return result;
}

}  // namespace

Result<> say(int socket, Word word, std::string_view name, int fd) {
    TARN_ASSERT(name.size() <= name_size_max);
    Message text{.word = static_cast<char>(word), .name = {}};
    std::ranges::copy(name, text.name.begin());
    iovec bytes{.iov_base = &text, .iov_len = sizeof text};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &bytes;
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
    if (unless_interrupted([&] { return ::sendmsg(socket, &message, MSG_NOSIGNAL); }) != sizeof text)
        return fail(Errc::io, errno, "keeper: sendmsg");
    return {};
}

void limit_waits(int socket, std::chrono::seconds most) {
    const timeval timeout{.tv_sec = most.count(), .tv_usec = 0};
    for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO})
        ::setsockopt(socket, SOL_SOCKET, direction, &timeout, sizeof timeout);
}

Result<Said> hear(int socket) {
    Message text{};
    iovec bytes{.iov_base = &text, .iov_len = sizeof text};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size =
        unless_interrupted([&] { return ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL); });
    if (size < 0) return fail(Errc::io, errno, "keeper: recvmsg");
    if (size == 0) return fail(Errc::closed, 0, "keeper: hung up");
    Said said{.word = static_cast<Word>(text.word), .name = {}, .fd = {}};
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        // There is room for two, as its size is rounded up: one is expected, and none may stay open unseen.
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
            int fd = -1;
            std::memcpy(&fd, reinterpret_cast<const std::byte*>(header) + at, sizeof fd);
            said.fd = UniqueFd(fd);
        }
    }
    if (size != sizeof text || text.name.back() != 0) return fail(Errc::protocol, 0, "keeper: not a whole message");
    said.name = text.name.data();
    return said;
}

}  // namespace tarn::keeper
