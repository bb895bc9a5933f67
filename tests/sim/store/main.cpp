// tarn_store_sim: the store on a simulated disk, through power cuts at any instant. One seed is one run.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>

#include "tests/sim/store/crash_run.hpp"

namespace tarn::store_sim {
namespace {

constexpr const char* usage =
    "usage: tarn_store_sim [--seeds COUNT] [--first SEED] [--points COUNT] [--jobs COUNT] [--seed SEED]\n"
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
    uint64_t jobs = 1;
    bool one = false;
};

bool parse(int argc, char** argv, Options& options) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        uint64_t* const into = name == "--seeds"    ? &options.seeds
                               : name == "--first"  ? &options.first
                               : name == "--points" ? &options.points
                               : name == "--jobs"   ? &options.jobs
                               : name == "--seed"   ? &options.first
                                                    : nullptr;
        if (!into || ++i == argc) return false;
        const std::string_view value = argv[i];
        if (std::from_chars(value.begin(), value.end(), *into).ptr != value.end()) return false;
        if (name == "--seed") options.one = true;
        if (name == "--points") options.seeds = UINT64_MAX;
    }
    if (options.one) options.seeds = options.jobs = 1;
    return options.jobs > 0;
}

// The hash of the disk's operations; empty when a check failed.
std::optional<uint64_t> run_seed(uint64_t seed, Loop& loop, Loop& other, Counts& counts) {
    current_seed = seed;
    CrashRun world(seed, loop, other, counts);
    const std::string failure = world.run();
    if (failure.empty()) return world.hash();
    fmt::print("seed {} failed: {}\nreplay: ./dev sim --store --seed {}\n", seed, failure, seed);
    return std::nullopt;
}

// Runs every jobs-th seed from the first one on, in a process of its own. Its counts are shared with the parent.
bool run_share(const Options& options, uint64_t first, Counts& counts) {
    std::signal(SIGABRT, tell_seed);
    std::signal(SIGSEGV, tell_seed);
    // The store's log lines about injected faults would drown the rest.
    if (!options.one && !std::freopen("/dev/null", "w", stderr)) return false;
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const std::unique_ptr<Loop> other = std::move(*Loop::create());
    const uint64_t points = (options.points + options.jobs - 1) / options.jobs;
    for (uint64_t seed = first; seed - options.first < options.seeds; seed += options.jobs) {
        if (options.points != 0 && counts.crash_points >= points) break;
        const std::optional<uint64_t> hash = run_seed(seed, *loop, *other, counts);
        if (!hash) return false;
        ++counts.seeds;
        // One seed is one run: some seeds run again, and must give the same hash.
        if (options.one || seed % 100 == 0) {
            Counts ignored;
            if (run_seed(seed, *loop, *other, ignored) != hash) {
                fmt::print("seed {} failed: it does not do the same twice\n", seed);
                return false;
            }
        }
    }
    return true;
}

Counts sum_of(std::span<const Counts> shares) {
    using Values = std::array<uint64_t, sizeof(Counts) / sizeof(uint64_t)>;
    Values sum{};
    for (const Counts& share : shares)
        std::ranges::transform(sum, std::bit_cast<Values>(share), sum.begin(), std::plus{});
    return std::bit_cast<Counts>(sum);
}

int run(const Options& options) {
    const auto start = std::chrono::steady_clock::now();
    // Each process needs its own: they end with _Exit, and one may crash.
    void* const memory =
        ::mmap(nullptr, options.jobs * sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    const std::span<Counts> shares(static_cast<Counts*>(memory), options.jobs);
    for (uint64_t share = 0; share < options.jobs; ++share) {
        if (::fork() != 0) continue;
        const bool passed = run_share(options, options.first + share, shares[share]);
        std::fflush(stdout);
        std::_Exit(passed ? 0 : 1);
    }
    bool passed = true;
    for (int status = 0; ::wait(&status) > 0;) passed &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!passed) return 1;
    const Counts counts = sum_of(shares);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print(
        "{} seeds, {} crash points ({} in recovery) in {:.1f} s; {} disk operations, {} changes, {} flushes, {} "
        "groups, {} losses, {} marks, {} upgrades, {} checkpoints, {} waits for room, {} full, {} failed disks, {} bad "
        "images "
        "({} "
        "refused), {} with lies ({} refused), {} at rest, {} with one bad place, {} full disks\n",
        counts.seeds, counts.crash_points, counts.recovery_cuts, seconds.count(), counts.operations, counts.changes,
        counts.flushes, counts.groups, counts.losses, counts.marks, counts.upgrades, counts.checkpoints, counts.waits,
        counts.no_space, counts.failed_disks, counts.spoiled, counts.refused, counts.lies, counts.lies_refused,
        counts.at_rest, counts.bad_places, counts.full_disks);
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
