// tarn init: makes a host's store, key and configuration file, and says what comes next.
#pragma once

#include <string>
#include <vector>

#include "daemon/cli/client.hpp"
#include "daemon/configuration/configuration.hpp"

namespace tarn {

struct InitOptions {
    std::string configuration_path = configuration_path_default;
    std::string store;
    std::string size;  // empty: the whole device
    std::string memory = "1GiB";
    std::string host;
    std::vector<std::string> peers;  // NAME=HOST:PORT, all hosts in the same order everywhere
    std::string cluster;             // empty: draws one
    std::string key_file;
    std::string control;
    std::string nbd_unix;
    std::string nbd_tcp;
    bool force = false;           // destroy what the store has
    bool replace_config = false;  // write over a configuration
};

// What was made, and in "next" the lines that tell how to go on.
Outcome<Json> initialise(const InitOptions& options);

}  // namespace tarn
