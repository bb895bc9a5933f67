// What tarnd and tarn-keeper say to each other: one connection per request, one byte each way, and perhaps a
// descriptor.
#pragma once

#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::keeper {

enum class Word : char {
    keep = 'k',  // with a descriptor; answered by done
    take = 't',  // answered by done with the descriptor, or by none
    drop = 'd',  // close it and end; answered by done
    done = '+',
    none = '-',
};

struct Said {
    Word word{};
    UniqueFd fd;
};

// fd: -1 for none. Errors: io, closed.
Result<> say(int socket, Word word, int fd = -1);
Result<Said> hear(int socket);

// Of tarn-keeper, when it is started.
inline constexpr int listening_fd = 3;
inline constexpr const char* until_shutdown = "until-shutdown";  // its second argument: SIGTERM ends it

}  // namespace tarn::keeper
