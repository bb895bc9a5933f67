// tarnd: the daemon. Reads what it is told to be, and is it until told to stop.
#include <malloc.h>
#include <sys/resource.h>

#include <cstdio>

#include "daemon/configuration/arguments.hpp"
#include "daemon/process/node.hpp"
#include "daemon/process/signals.hpp"
#include "utils/log.hpp"

namespace {

// Fewer do not reach from the store to the sockets of the first clients.
constexpr unsigned descriptors_min = 256;

}  // namespace

int main(int argc, char** argv) {
    // First: a signal that comes while the configuration is read waits for the loop.
    auto signals = tarn::Signals::create();
    if (!signals) {
        tarn::log::error("signals: {}", tarn::log::describe(signals.error()));
        return 1;
    }
    const auto arguments = tarn::parse_arguments(std::span(argv, static_cast<size_t>(argc)));
    if (!arguments) {
        std::fputs(arguments.error().text.c_str(), arguments.error().exit_code == 0 ? stdout : stderr);
        return arguments.error().exit_code;
    }
    if (arguments->check_only) {
        std::printf("%s: good\n", arguments->configuration_path.c_str());
        return 0;
    }
    // What is freed goes back to the system: `memory` bounds the process, not only what it uses.
    ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 2 << 20);
    // As many descriptors as it may have: the shell's usual limit is for programs that use few.
    if (rlimit descriptors{}; ::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
        descriptors.rlim_cur = descriptors.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &descriptors);
        if (descriptors.rlim_max < descriptors_min) {
            std::fprintf(stderr,
                         "tarnd: the limit of open files is %llu, and tarnd needs %u; raise it (ulimit -Hn, or "
                         "LimitNOFILE= of the unit)\n",
                         static_cast<unsigned long long>(descriptors.rlim_max), descriptors_min);
            return 2;
        }
    }
    tarn::log::set_level(arguments->configuration.log_level);
    tarn::Node node(arguments->configuration, arguments->start);
    return node.run(*signals);
}
