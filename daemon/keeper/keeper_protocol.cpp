#include "daemon/keeper/keeper_protocol.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace tarn::keeper {

Result<> say(int socket, Word word, int fd) {
    char byte = static_cast<char>(word);
    iovec bytes{.iov_base = &byte, .iov_len = 1};
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
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) != 1) return fail(Errc::io, errno, "keeper: sendmsg");
    return {};
}

Result<Said> hear(int socket) {
    char byte = 0;
    iovec bytes{.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (size < 0) return fail(Errc::io, errno, "keeper: recvmsg");
    if (size == 0) return fail(Errc::closed, 0, "keeper: hung up");
    Said said{.word = static_cast<Word>(byte), .fd = {}};
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
        said.fd = UniqueFd(fd);
    }
    return said;
}

}  // namespace tarn::keeper
