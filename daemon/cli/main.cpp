// tarn's main().
#include <iostream>

#include "daemon/cli/cli.hpp"

int main(int argument_count, char** arguments) {
    const std::span<const char* const> words(arguments, static_cast<size_t>(argument_count));
    return static_cast<int>(tarn::run_cli(words, std::cout, std::cerr));
}
