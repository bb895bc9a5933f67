// Passing descriptors from one process to another, over a Unix socket and with some bytes. For tarn-keeper, which holds
// what an ended process had, and for memory that hosts share.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "utils/unique_fd.hpp"

namespace tarn {

// As sendmsg(), with the descriptor; -1: with none. Begins anew after a signal, and raises none.
ssize_t send_passing(int socket, std::span<const std::byte> bytes, int fd, int flags = 0);
// As recvmsg(). What was passed is appended: it belongs to this process, also where nobody expected it. Begins anew
// after a signal.
ssize_t receive_passed(int socket, std::span<std::byte> bytes, std::vector<UniqueFd>& passed, int flags = 0);

}  // namespace tarn
