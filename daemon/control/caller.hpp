// Caller: the user at the other end of the control socket, as the kernel knows him, for what is done with his rights.
#pragma once

#include <sys/types.h>

#include <vector>

#include "utils/result.hpp"

namespace tarn {

struct Caller {
    uid_t user = 0;
    gid_t group = 0;
    std::vector<gid_t> groups;  // supplementary

    static Result<Caller> of(int socket);
    // Of this process.
    static Caller self();
};

}  // namespace tarn
