// tarn_sim: runs seeds of the simulated cluster. One seed is one run, bit for bit.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/sim/cluster.hpp"
#include "tests/sim/failure.hpp"

namespace tarn::sim {
namespace {

constexpr const char* usage =
    "usage: tarn_sim [--seeds COUNT] [--from SEED] [--seed SEED] [--faults none|all] [--trace] [--stop-at-first]\n";
constexpr uint64_t big_run = 5000;      // from here on every race must have been reached
constexpr uint64_t replay_every = 100;  // one seed in so many runs twice, and must run equally

struct Options {
    uint64_t from = 1;
    uint64_t count = 100;
    bool with_faults = true;
    bool traces = false;
    uint64_t failed_max = 10;
};

bool parse(int argc, char** argv, Options& options) {
    for (int index = 1; index < argc; ++index) {
        const std::string name = argv[index];
        if (name == "--stop-at-first") {
            options.failed_max = 1;
            continue;
        }
        if (name == "--trace") {
            options.traces = true;
            continue;
        }
        if (index + 1 == argc) return false;
        const char* value = argv[++index];
        if (name == "--faults") {
            options.with_faults = std::strcmp(value, "none") != 0;
            continue;
        }
        char* end = nullptr;
        const uint64_t number = std::strtoull(value, &end, 10);
        if (*end != '\0') return false;
        if (name == "--seeds") {
            options.count = number;
        } else if (name == "--from") {
            options.from = number;
        } else if (name == "--seed") {
            options.from = number;
            options.count = 1;
        } else {
            return false;
        }
    }
    return true;
}

int run(const Options& options) {
    const auto start = std::chrono::steady_clock::now();
    uint64_t failed = 0;
    uint64_t events = 0;
    Coverage coverage;
    for (uint64_t seed = options.from; seed < options.from + options.count; ++seed) {
        Cluster cluster(seed, options.with_faults, options.traces);
        try {
            cluster.run();
            if (seed % replay_every == 0) {
                Cluster again(seed, options.with_faults, false);
                again.run();
                require(again.trace_hash() == cluster.trace_hash(), "two runs of one seed differ");
            }
        } catch (const Failure& failure) {
            std::printf("seed %llu failed: %s\n  replay: tarn_sim --seed %llu --trace%s\n",
                        static_cast<unsigned long long>(seed), failure.what(), static_cast<unsigned long long>(seed),
                        options.with_faults ? "" : " --faults none");
            if (options.traces) cluster.describe();
            if (++failed == options.failed_max) break;
        }
        events += cluster.event_count();
        coverage.add(cluster.coverage());
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const bool reached_all = coverage.print(options.with_faults);
    std::printf("%llu passed, %llu failed (%.0f schedules/s, %.1f M events/s)\n",
                static_cast<unsigned long long>(options.count - failed), static_cast<unsigned long long>(failed),
                static_cast<double>(options.count) / seconds.count(),
                static_cast<double>(events) / seconds.count() / 1e6);
    if (options.count >= big_run && !reached_all) {
        std::printf("a race was never reached\n");
        return 1;
    }
    return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tarn::sim

int main(int argc, char** argv) {
    tarn::sim::Options options;
    if (!tarn::sim::parse(argc, argv, options)) {
        std::fputs(tarn::sim::usage, stderr);
        return 2;
    }
    return tarn::sim::run(options);
}
