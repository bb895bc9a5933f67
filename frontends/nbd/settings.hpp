// Settings: what an administrator decides about the NBD server. The keys of [nbd] in tarn.toml.
#pragma once

#include <chrono>
#include <cstddef>
#include <set>
#include <string>

namespace tarn::nbd {

struct Settings {
    std::string host;                 // this host's name, for the descriptions of exports; may be empty
    std::set<std::string> read_only;  // volumes that clients may only read
    // How many connections there may be; the process's limit of open files may allow fewer (Server).
    size_t connections_max = 16 * 1024;
    // How many of them may be in their handshake; at most half of all.
    size_t handshakes_max = 1024;
    // How long that may take.
    std::chrono::seconds handshake_time_max{30};
};

}  // namespace tarn::nbd
