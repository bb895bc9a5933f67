// Listening on a path: made with its mode from the start, and a dead daemon's socket taken over.
#pragma once

#include <sys/types.h>

#include <string>

#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

// Makes the directory when only that is missing. Errors: busy (somebody listens there), exists (something else than a
// socket is there), invalid (the path is too long), refused, io.
Result<UniqueFd> listen_unix(const std::string& path, mode_t mode);

// Whether somebody listens there just now.
bool is_listened_to(const std::string& path);

// Why the directory of a path is unsafe for a socket that others trust, since another user could put a socket of his
// own there; empty: it is safe. The directory and all above it are checked. A safe one belongs to root or to our user,
// and is writable for them and our group only, or sticky (as /tmp). One that is not there yet counts as safe.
std::string unsafe_place(const std::string& path);

// The user that the process at the other end runs as. Errors: io.
Result<uid_t> peer_user(int socket);

}  // namespace tarn
