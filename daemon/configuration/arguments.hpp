// Arguments: tarnd's command line. Flags say the same as keys of the configuration file, and win over them.
#pragma once

#include <expected>
#include <span>
#include <string>

#include "daemon/configuration/configuration.hpp"

namespace tarn {

struct Arguments {
    Configuration configuration;
    std::string configuration_path;
    bool check_only = false;  // --check-config: say whether the configuration is good, and leave
    StartOptions start;
};

// The process ends with this: text belongs on stdout when the code is 0, else on stderr.
struct Leave {
    int exit_code = 0;
    std::string text;
};

inline constexpr int exit_configuration = 2;

// Reads the command line and the configuration file that it names. Leaves for --help, --version and every mistake.
std::expected<Arguments, Leave> parse_arguments(std::span<const char* const> arguments);

}  // namespace tarn
