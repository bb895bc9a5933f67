// What tarn-keeper is told and says: messages of one size, each perhaps with a descriptor. A connection is for one
// request; that of a watcher stays.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::keeper {

enum class Word : char {
    keep = 'k',   // with a descriptor, under a name: in place of what has that name; answered by done
    take = 't',   // answered by done for each descriptor, with its name, and then by none
    drop = 'd',   // close what has this name, or this name and a dot before more; answered by done
    cut = 'c',    // the same, and shut the sockets among them down first
    has = 'h',    // answered by done if something has this name, else by none
    watch = 'w',  // answered by done, and then by cut and the name whenever somebody says that
    done = '+',
    none = '-',
};

struct Said {
    Word word{};
    std::string name;
    UniqueFd fd;
};

inline constexpr size_t name_size_max = 62;

// fd: -1 for none. Errors: io, closed, protocol; both give up after as long as limit_waits() allows.
Result<> say(int socket, Word word, std::string_view name = {}, int fd = -1);
Result<Said> hear(int socket);
void limit_waits(int socket, std::chrono::seconds most);

// Of tarn-keeper, when it is started.
inline constexpr int listening_fd = 3;
inline constexpr const char* until_shutdown = "until-shutdown";  // its second argument: SIGTERM ends it

}  // namespace tarn::keeper
