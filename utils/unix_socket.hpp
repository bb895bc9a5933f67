// Listening on a path: made with its mode from the start, and a dead daemon's socket taken over.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <string>

#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

// Errors: invalid (it is empty, or too long for a socket).
Result<sockaddr_un> unix_address(const std::string& path);

// Makes the directory when only that is missing. Errors: busy (somebody listens there), exists (something else than a
// socket is there), invalid (the path is too long), io.
Result<UniqueFd> listen_unix(const std::string& path, mode_t mode, int backlog = 64);

// Whether somebody listens there just now.
bool is_listened_to(const std::string& path);

// Why the directory of a path is unsafe for a socket that others trust, since another user could put a socket of his
// own there; empty: it is safe. The directory and all above it are checked. A safe one belongs to root or to our user,
// and is writable for them and our group only, or sticky (as /tmp). One that is not there yet counts as safe.
std::string unsafe_place(const std::string& path);

// The process at the other end, and whose it is. Errors: io.
Result<ucred> peer_of(int socket);
// Whether that process is still there: then nobody else has its id. True also where that cannot be told: before Linux
// 6.5, or for lack of descriptors.
bool peer_lives(int socket);

}  // namespace tarn
