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

}  // namespace tarn
