// tarn_hosts_sim: whole hosts over a simulated network, disk and clock. One seed is one run.
#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/sim/hosts/run.hpp"
#include "utils/log.hpp"

namespace tarn::hosts_sim {
namespace {

constexpr const char* usage =
    "usage: tarn_hosts_sim [--seeds COUNT] [--first SEED] [--seed SEED]\n"
    "  --seed   one seed, with what the hosts log and the hash of its turns\n";

uint64_t current_seed = 0;

int report(const std::string& what) {
    fmt::print("seed {} failed: {}\nreplay: ./dev sim --hosts --seed {}\n", current_seed, what, current_seed);
    std::fflush(stdout);
    return 1;
}

void tell_seed(int) {
    (void)report("it crashed");
    std::_Exit(1);
}

int main(int argc, char** argv) {
    uint64_t seeds = 100;
    uint64_t first = 1;
    bool one = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        uint64_t* const into = name == "--seeds" ? &seeds : name == "--first" || name == "--seed" ? &first : nullptr;
        const std::string_view value = into && ++i < argc ? argv[i] : "";
        if (value.empty() || std::from_chars(value.begin(), value.end(), *into).ptr != value.end()) {
            fmt::print(stderr, "{}", usage);
            return 2;
        }
        one |= name == "--seed";
    }
    if (one) seeds = 1;
    if (one) log::set_level(log::Level::info);
    // Lost writes and failed disks are what it is about.
    if (!one && !std::freopen("/dev/null", "w", stderr)) return 2;
    for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, tell_seed);
    Counts counts;
    for (uint64_t i = 0; i < seeds; ++i) {
        current_seed = first + i;
        Run run(current_seed, counts);
        if (const std::string wrong = run.run(); !wrong.empty()) return report(wrong);
        if (!one) continue;
        const uint64_t hash = run.hash();
        fmt::print("hash {:016x}\n", hash);
    }
    fmt::print(
        "{} seeds passed: {} operations ({} failed), {} flushes, {} turns; {} links cut, {} hosts killed, {} "
        "stopped, {} paused, {} power cuts, {} disks that failed\n",
        counts.seeds, counts.operations, counts.failed_operations, counts.flushes, counts.turns, counts.cuts,
        counts.kills, counts.stops, counts.pauses, counts.power_cuts, counts.failed_disks);
    return 0;
}

}  // namespace
}  // namespace tarn::hosts_sim

int main(int argc, char** argv) {
    return tarn::hosts_sim::main(argc, argv);
}
