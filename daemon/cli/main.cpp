// tarn's main().
#include <unistd.h>

#include <iostream>

#include "daemon/cli/cli.hpp"

int main(int argument_count, char** arguments) {
    const std::span<const char* const> words(arguments, static_cast<size_t>(argument_count));
    const tarn::Terminals terminals{.out = ::isatty(STDOUT_FILENO) == 1, .err = ::isatty(STDERR_FILENO) == 1};
    return static_cast<int>(tarn::run_cli(words, std::cout, std::cerr, terminals));
}
