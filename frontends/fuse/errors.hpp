// The one place where our errors become a file system's errno.
#pragma once

#include <cerrno>
#include <expected>
#include <optional>

#include "utils/result.hpp"

namespace tarn::fuse {

inline int to_errno(const Error& error) {
    switch (error.code) {
        case Errc::no_space: return ENOSPC;
        case Errc::not_found: return ENOENT;
        case Errc::exists: return EEXIST;
        case Errc::busy: return EBUSY;
        case Errc::invalid: return EINVAL;
        case Errc::refused: return EACCES;
        case Errc::unsupported: return ENOTSUP;
        case Errc::cancelled: return EINTR;
        case Errc::io:
        case Errc::unavailable:
        case Errc::protocol:
        case Errc::corrupt:
        case Errc::closed: return EIO;
    }
    return EIO;
}

// 0 for success.
inline int to_errno(const Result<>& result) {
    return result ? 0 : to_errno(result.error());
}

// What an operation leaves to be said of its request: nothing, since it has replied, or an error number.
struct Answer {
    Answer() = default;
    Answer(int number) : error_number(number) {}
    Answer(const std::unexpected<Error>& failed) : error_number(to_errno(failed.error())) {}

    std::optional<int> error_number;
};

}  // namespace tarn::fuse
