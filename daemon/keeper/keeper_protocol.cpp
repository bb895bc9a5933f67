#include "daemon/keeper/keeper_protocol.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "utils/assert.hpp"
#include "utils/descriptor_passing.hpp"

namespace tarn::keeper {

namespace {

// All are of one size: neither end can take two of them for one.
struct Message {
    char word;
    std::array<char, name_size_max + 1> name;  // ends with a zero
};

}  // namespace

Result<> say(int socket, Word word, std::string_view name, int fd) {
    TARN_ASSERT(name.size() <= name_size_max);
    Message text{.word = static_cast<char>(word), .name = {}};
    std::ranges::copy(name, text.name.begin());
    if (send_passing(socket, std::as_bytes(std::span(&text, 1)), fd) != sizeof text)
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
    std::vector<UniqueFd> passed;
    const ssize_t size = receive_passed(socket, std::as_writable_bytes(std::span(&text, 1)), passed, MSG_WAITALL);
    if (size < 0) return fail(Errc::io, errno, "keeper: recvmsg");
    if (size == 0) return fail(Errc::closed, 0, "keeper: hung up");
    Said said{.word = static_cast<Word>(text.word), .name = {}, .fd = {}};
    if (!passed.empty()) said.fd = std::move(passed.back());  // one is expected
    if (size != sizeof text || text.name.back() != 0) return fail(Errc::protocol, 0, "keeper: not a whole message");
    said.name = text.name.data();
    return said;
}

}  // namespace tarn::keeper
