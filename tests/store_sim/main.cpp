// tarn_store_sim: the store on a simulated disk, through power cuts at any instant. One seed is one run.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/store_sim/world.hpp"

namespace tarn::store_sim {
namespace {

constexpr const char* usage =
    "usage: tarn_store_sim [--seeds COUNT] [--first SEED] [--points COUNT] [--seed SEED]\n"
    "  --points   at least so many crash points, whatever the number of seeds\n"
    "  --seed     one seed, twice: both must do the same\n";

uint64_t current_seed = 0;

void tell_seed(int) {
    fmt::print("seed {} failed: it crashed\nreplay: ./dev sim --store --seed {}\n", current_seed, current_seed);
    std::fflush(stdout);
    std::_Exit(1);
}

struct Options {
    uint64_t seeds = 1000;
    uint64_t first = 1;
    uint64_t points = 0;
    bool one = false;
};

bool parse(int argc, char** argv, Options& options) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        uint64_t* const into = name == "--seeds"    ? &options.seeds
                               : name == "--first"  ? &options.first
                               : name == "--points" ? &options.points
                               : name == "--seed"   ? &options.first
                                                    : nullptr;
        if (!into || ++i == argc) return false;
        const std::string_view value = argv[i];
        if (std::from_chars(value.begin(), value.end(), *into).ptr != value.end()) return false;
        if (name == "--seed") options.one = true;
        if (name == "--points") options.seeds = UINT64_MAX;
    }
    return true;
}

// The hash of what the disk was asked to do; empty when a check failed.
std::optional<uint64_t> run_seed(uint64_t seed, Loop& loop, Loop& other, Counts& counts) {
    current_seed = seed;
    World world(seed, loop, other, counts);
    const std::string failure = world.run();
    if (failure.empty()) return world.hash();
    fmt::print("seed {} failed: {}\nreplay: ./dev sim --store --seed {}\n", seed, failure, seed);
    return std::nullopt;
}

int run(const Options& options) {
    std::signal(SIGABRT, tell_seed);
    std::signal(SIGSEGV, tell_seed);
    // What the store logs of the faults it is given would drown the rest.
    if (!options.one && !std::freopen("/dev/null", "w", stderr)) return 1;
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const std::unique_ptr<Loop> other = std::move(*Loop::create());
    Counts counts;
    const auto start = std::chrono::steady_clock::now();
    uint64_t seed = options.first;
    const uint64_t count = options.one ? 1 : options.seeds;
    for (; seed - options.first < count && (options.points == 0 || counts.crash_points < options.points); ++seed) {
        const std::optional<uint64_t> hash = run_seed(seed, *loop, *other, counts);
        if (!hash) return 1;
        // One seed is one run: said again now and then, it must be the same.
        if (options.one || seed % 100 == 0) {
            Counts ignored;
            if (run_seed(seed, *loop, *other, ignored) != hash) {
                fmt::print("seed {} failed: it does not do the same twice\n", seed);
                return 1;
            }
        }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print(
        "{} seeds, {} crash points ({} in recovery) in {:.1f} s; {} disk operations, {} changes, {} flushes, {} "
        "groups, {} losses, {} upgrades, "
        "{} checkpoints, {} waits for room, {} full, {} failed disks, {} bad images ({} refused), {} with "
        "lies ({} refused)\n",
        seed - options.first, counts.crash_points, counts.recovery_cuts, seconds.count(), counts.operations,
        counts.changes, counts.flushes, counts.groups, counts.losses, counts.upgrades, counts.checkpoints, counts.waits,
        counts.no_space, counts.failed_disks, counts.spoiled, counts.refused, counts.lies, counts.lies_refused);
    return 0;
}

}  // namespace
}  // namespace tarn::store_sim

int main(int argc, char** argv) {
    tarn::store_sim::Options options;
    if (!tarn::store_sim::parse(argc, argv, options)) {
        std::fputs(tarn::store_sim::usage, stderr);
        return 2;
    }
    return tarn::store_sim::run(options);
}
