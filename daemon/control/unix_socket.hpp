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

// Why the directory of a path is no place for a socket that others trust: somebody else could put another there.
// Checked with all that are above it. Good are directories of root or of our user that only they may write, or our
// group, or where only the owner of a file may remove it (as in /tmp). Empty: it is good, or not there yet, and what is
// above it is good.
std::string unsafe_place(const std::string& path);

// The user that the process at the other end runs as. Errors: io.
Result<uid_t> peer_user(int socket);

}  // namespace tarn
