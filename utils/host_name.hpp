// What this machine calls itself.
#pragma once

#include <limits.h>
#include <unistd.h>

#include <string>

namespace tarn {

// As hostname(1) prints it; localhost where it has no name.
inline std::string machine_name() {
    char name[HOST_NAME_MAX + 1] = {};
    if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
    return name;
}

}  // namespace tarn
